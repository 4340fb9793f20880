"""What `kfp_runner.py` does: compiles a specification, checks one, and handles runs of it."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import Any

from components.contract.errors import ConfigurationError, StorageError
from components.storage.artifact_files import on_disk
from pipeline_def.config.command_line import make_parser, parse
from pipeline_def.config.config import Config
from pipeline_def.config.model import NATIVE_SIZES
from pipeline_def.config.network_choice import resolve
from pipeline_def.kubeflow import run_commands
from pipeline_def.kubeflow.command_options import Parser, add_target
from pipeline_def.steps import EXAMPLE_GEN, PREDICTOR

_DESCRIPTION = """Runs the pipeline of local_runner.py on open-source Kubeflow Pipelines v2 or on
Vertex AI: `compile` writes its specification, `check` says what a target would refuse in one, `run`
uploads one and starts it. The others are for open-source Kubeflow."""

_COMPILE = "Writes the specification of the pipeline, the same bytes for the same choices."
_CHECK = "Says what the target would refuse in a specification; any, not only ours."
_TEXTS = {
    "compile": _COMPILE,
    "check": _CHECK,
    "run": run_commands.RUN,
    "schedule": run_commands.SCHEDULE,
    "runs": run_commands.RUNS,
    "logs": run_commands.LOGS,
    "stop": run_commands.STOP,
}

# Without looking at the images: what suits photographs as the model needs them.
_UNSEEN_SIDE = {False: 96, True: 224}


def overview(arguments: list[str]) -> int:
    """Print the help, or say that the first argument is none of the commands."""
    first = arguments[0] if arguments else ""
    if meant := difflib.get_close_matches(first, COMMANDS, n=1):
        raise ConfigurationError(f"There is no command {first}: did you mean {meant[0]}?")
    parser = Parser(prog="kfp_runner.py", description=_DESCRIPTION)
    commands = parser.add_subparsers(required=True, metavar="|".join(COMMANDS))
    for name, text in _TEXTS.items():
        commands.add_parser(name, help=text)
    parser.parse_args(arguments)
    return 0


def compile_(arguments: list[str]) -> int:
    """Write the specification to a file."""
    parser = Parser(prog="kfp_runner.py compile", description=_COMPILE, add_help=False)
    add_target(parser)
    parser.add_argument("--image", required=True, help="Container image with this repository.")
    parser.add_argument(
        "--output", default="pipeline.yaml", metavar="FILE", help="File to write: pipeline.yaml."
    )
    choices = make_parser(
        "kfp_runner.py compile", parser.format_help(), hidden={"output", "working_copy"}
    )
    if any(word.startswith(("-h", "--help")) for word in arguments):
        parse(choices, arguments)
    own, rest = parser.parse_known_args(arguments)
    config, _ = parse(choices, rest)
    config = _for_cluster(config)

    from pipeline_def.kubeflow.compile.compiler import compile_documents, dump_documents

    documents = compile_documents(config, target=own.target, image=own.image)
    try:
        Path(own.output).write_text(dump_documents(documents), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"Cannot write {own.output}: {error.strerror}.") from error
    size = config.transform.size
    print(f"The model {config.model.title} sees images at {size} x {size} pixels.")
    if (workers := config.kubeflow.workers) > 1:
        job = {"oss": "a TFJob", "vertex": "a custom job"}[own.target]
        print(f"{workers} workers train together, in {job}.")
    print(f"Written: {own.output}, for {own.target}")
    return 0


def _for_cluster(config: Config) -> Config:
    """Check what only a cluster asks for, and decide what a local run takes from the images."""
    if config.data is None:
        raise ConfigurationError(
            "--data is missing: a cluster needs a folder of images, such as gs://…"
        )
    for name, value, step in (
        ("data", config.data, EXAMPLE_GEN),
        ("kubeflow.storage", config.kubeflow.storage, EXAMPLE_GEN),
        ("predict.folder", config.predict.folder, PREDICTOR),
    ):
        volumes = tuple(config.kubeflow.step(step.id).volumes.values())
        if value and on_disk(value) and not value.startswith(volumes or ("\0",)):
            raise ConfigurationError(
                f"--{name} is {value}: a cluster needs a URL, such as gs://bucket/dir, or a folder "
                "on a volume that kubeflow.steps mounts."
            )
    if f"{config.kubeflow.storage}/".startswith(f"{config.data.rstrip('/')}/"):
        raise ConfigurationError(
            f"--kubeflow.storage {config.kubeflow.storage} lies in --data, so that models would be "
            "taken for images: choose another folder."
        )
    side = _UNSEEN_SIDE[config.model.weights != "none" or config.model.name in NATIVE_SIZES]
    return resolve(config, shorter_side=side, images=0)[0]


def check(arguments: list[str]) -> int:
    """Print what a target would refuse in a specification, and what it needs and is not there."""
    own = check_parser().parse_args(arguments)

    from pipeline_def.kubeflow.check.spec_check import check_documents, read_documents

    documents = read_documents(own.file)
    check_documents(documents, own.target)
    print(f"{own.file}: nothing found that {own.target} would refuse")
    return _preflight(documents, own.namespace) if own.preflight else 0


def check_parser() -> argparse.ArgumentParser:
    """Make the parser of `check`."""
    parser = Parser(prog="kfp_runner.py check", description=_CHECK)
    parser.add_argument("file", help="The specification, YAML or JSON.")
    add_target(parser)
    parser.add_argument(
        "--preflight",
        action="store_true",
        help="Look for its images, secrets, volumes and data, with kubectl's configuration.",
    )
    parser.add_argument(
        "--namespace", default="kubeflow", help="Where it is to run, for --preflight: kubeflow."
    )
    return parser


def _preflight(documents: list[Any], namespace: str) -> int:
    """Print what is there and what is not; return 1 if anything is missing."""
    from pipeline_def.kubeflow.check.kubectl import Kubectl
    from pipeline_def.kubeflow.check.preflight import look_around
    from pipeline_def.kubeflow.specification import Specification

    missing = 0
    words = {"ok": "there", "wrong": "MISSING", "unknown": "unknown"}
    for finding in look_around(Specification(*documents), Kubectl(namespace)):
        missing += finding.state == "wrong"
        print(f"{words[finding.state]:<8} {finding.text}", flush=True)
    return 1 if missing else 0


COMMANDS = {
    "compile": compile_,
    "check": check,
    "run": run_commands.run,
    "schedule": run_commands.schedule,
    "runs": run_commands.runs,
    "logs": run_commands.logs,
    "stop": run_commands.stop,
}
"""The first argument → what it does; without one of them, `overview`."""
