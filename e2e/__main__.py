"""The command line of the test on a real cluster."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from e2e import scenario
from e2e.commands import Failure

RELEASES = ("2.5.0", "2.14.3", "2.17.0")
"""The releases in the workflow: the oldest supported, one between, the newest."""

_DESCRIPTION = """Runs the pipeline on a real Kubeflow Pipelines: makes a cluster with kind,
installs Kubeflow, builds the image, and runs it on the digits: first, all from the cache, with a
changed image, against the pushed model, and with broken images. With --kubeconfig it takes a
cluster with Kubeflow and the image, and leaves only runs of a pipeline of its own and the folder
e2e/ below the pipeline root behind. What it saw is in report.md, to paste into an issue."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e", description=_DESCRIPTION)
    add = parser.add_argument
    add("--release", default=RELEASES[-1], help=f"Of Kubeflow Pipelines: {RELEASES[-1]}.")
    add("--kubeconfig", help="A cluster that is there already, instead of one of kind's.")
    add("--image", default="tfx-images:e2e", help="Name of the image: tfx-images:e2e.")
    add("--output", type=Path, default=Path("output-e2e"), help="Folder for results: output-e2e.")
    add("--steps", default="{}", help="kubeflow.steps, YAML: GPUs, spot or autoscaled nodes.")
    add("--root", help="Pipeline root, such as gs://BUCKET/FOLDER. Default: the cluster's.")
    add("--namespace", help="Namespace of the user, on a cluster with several.")
    add("--token-file", help="File with the user's bearer token.")
    add("--keep", action="store_true", help="Leave kind's cluster for a look at it.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the test; return 1 if it fails."""
    try:
        scenario.run(scenario.Options(**vars(_parser().parse_args(argv))))
    except Failure as failure:
        print(f"e2e: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
