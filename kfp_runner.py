"""Compiles the image pipeline for Kubeflow Pipelines: `uv run kfp_runner.py --help`."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from components.errors import UserError
from pipeline_def.command_line import make_parser, parse
from pipeline_def.config import Config

_DESCRIPTION = """Writes the pipeline as a Kubeflow Pipelines v2 specification. The pipeline is the
one that local_runner.py runs. What TFX compiles is made for Vertex AI; it has not been run on a
cluster, and open-source Kubeflow Pipelines needs more than this yet."""


def main(argv: Sequence[str] | None = None) -> int:
    """Compile; return the exit status: 0, or 2 for a user's mistake."""
    parser = make_parser("kfp_runner.py", _DESCRIPTION)
    parser.add_argument("--image", required=True, help="Container image with this repository.")
    parser.add_argument("--spec", default="pipeline.yaml", help="File to write.")
    try:
        config, options = parse(parser, argv)
        _check(config)
        compile_pipeline(config, image=options["image"], path=options["spec"])
    except UserError as error:
        print(f"kfp_runner.py: error: {error}", file=sys.stderr)
        return 2
    print(f"Written: {options['spec']}")
    return 0


def _check(config: Config) -> None:
    for name, value in (("data", config.data), ("output", config.output)):
        if "://" not in (value or ""):
            raise UserError(f"--{name} is {value}: a cluster needs a URL, such as gs://bucket/dir.")
    if config.transform.size is None or config.model.name == "auto":
        raise UserError(
            "Set --transform.size and --model.name: the images are not looked at when the "
            "pipeline is compiled."
        )


def compile_pipeline(config: Config, *, image: str, path: str) -> None:
    """Write the specification of the pipeline, schema 2.1.0, as YAML to `path`."""
    # What Google's libraries say about the Python version is nothing a user can act on.
    warnings.filterwarnings("ignore", category=FutureWarning)
    from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner

    from pipeline_def.pipeline import create_pipeline

    runner = kubeflow_v2_dag_runner.KubeflowV2DagRunner(
        kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(
            default_image=image, use_pipeline_spec_2_1=True
        ),
        output_dir=os.path.dirname(os.path.abspath(path)),
        output_filename=os.path.basename(path),
    )
    runner.run(create_pipeline(config))


if __name__ == "__main__":
    sys.exit(main())
