"""What `kfp_runner.py` does: compile a specification, check one, or start a run of one."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import NoReturn

from components.contract.errors import ConfigurationError, StorageError
from pipeline_def.config.command_line import make_parser, parse
from pipeline_def.config.config import Config
from pipeline_def.config.model import NATIVE_SIZES
from pipeline_def.config.network_choice import resolve

_DESCRIPTION = """Runs the pipeline of local_runner.py on open-source Kubeflow Pipelines v2 or on
Vertex AI: `compile` writes its specification, `run` uploads one and starts it, `check` says what a
target would refuse in one."""

_COMPILE = "Writes the specification of the pipeline, the same bytes for the same choices."
_RUN = "Uploads a specification as a new version of its pipeline and starts a run of it."
_CHECK = "Says what the target would refuse in a specification; any, not only ours."

# Without looking at the images: what suits photographs as the model needs them.
_UNSEEN_SIDE = {False: 96, True: 224}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        text = f"{message[:1].upper()}{message[1:].rstrip('.')}"
        raise ConfigurationError(f"{text}. See {self.prog} --help.")


def overview(arguments: list[str]) -> int:
    """Print the help, or say that the first argument is none of the commands."""
    first = arguments[0] if arguments else ""
    if meant := difflib.get_close_matches(first, COMMANDS, n=1):
        raise ConfigurationError(f"There is no command {first}: did you mean {meant[0]}?")
    parser = _Parser(prog="kfp_runner.py", description=_DESCRIPTION)
    commands = parser.add_subparsers(required=True, metavar="compile|run|check")
    for name, text in (("compile", _COMPILE), ("run", _RUN), ("check", _CHECK)):
        commands.add_parser(name, help=text)
    parser.parse_args(arguments)
    return 0


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        choices=("oss", "vertex"),
        default="oss",
        help="Open-source Kubeflow Pipelines v2 (oss, the default), or Vertex AI.",
    )


def compile_(arguments: list[str]) -> int:
    """Write the specification to a file."""
    parser = _Parser(prog="kfp_runner.py compile", description=_COMPILE, add_help=False)
    _add_target(parser)
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
    volumes = tuple(config.kubeflow.step("ImageExampleGen").volumes.values())
    for name, value in (("data", config.data), ("kubeflow.storage", config.kubeflow.storage)):
        if value and "://" not in value and not value.startswith(volumes or ("\0",)):
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
    """Print what a target would refuse in a specification."""
    parser = _Parser(prog="kfp_runner.py check", description=_CHECK)
    parser.add_argument("file", help="The specification, YAML or JSON.")
    _add_target(parser)
    own = parser.parse_args(arguments)

    from pipeline_def.kubeflow.check.spec_check import check_documents, read_documents

    check_documents(read_documents(own.file), own.target)
    print(f"{own.file}: nothing found that {own.target} would refuse")
    return 0


def _run_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="kfp_runner.py run", description=_RUN)
    _add_target(parser)
    add = parser.add_argument
    add("--spec", default="pipeline.yaml", help="What `compile` wrote: pipeline.yaml.")
    add(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="A parameter of the run, such as training_epochs=5; as often as needed.",
    )
    add("--run-name", help="Name of the run; else pipeline and time.")
    add("--pipeline-root", help="URL below which this run keeps what its steps write.")
    add("--service-account", help="Account that the steps run as.")
    add("--no-cache", action="store_true", help="Run every step, whatever was done before.")
    add("--output", default="output", metavar="DIR", help="Folder for the run's record: output.")
    add("--wait", action="store_true", help="Follow the run; the status tells how it ended.")
    oss = parser.add_argument_group("open-source Kubeflow Pipelines")
    oss.add_argument("--endpoint", help="URL of the pipelines' API: http://localhost:8080.")
    oss.add_argument("--namespace", help="Of the user, where there are several.")
    oss.add_argument("--experiment", default="images", help="Made when missing: images.")
    oss.add_argument("--pipeline-version", help="Name of the version; else time and digest.")
    oss.add_argument(
        "--token-file", help="File with a bearer token; else the variable KFP_TOKEN, or none."
    )
    oss.add_argument("--ca-cert", help="File with the certificate of the server's authority.")
    oss.add_argument("--timeout", type=float, default=30.0, help="Of a request, seconds: 30.")
    vertex = parser.add_argument_group("Vertex AI")
    vertex.add_argument("--project", help="Of Google Cloud.")
    vertex.add_argument("--region", help="Such as europe-west4.")
    return parser


def run(arguments: list[str]) -> int:
    """Start a run, and follow it if asked; return 1 if it failed."""
    own = _run_parser().parse_args(arguments)

    from pipeline_def.kubeflow.client import submission
    from pipeline_def.kubeflow.client.run_record import RunWriter

    writer = RunWriter(own)
    started = submission.start(own)
    writer.write_start(started)
    print(f"Run: {started.run_id}\n{started.url}", flush=True)
    if not own.wait:
        return 0
    return 0 if submission.follow(own, started.run_id, writer.see) in submission.SUCCEEDED else 1


COMMANDS = {"compile": compile_, "run": run, "check": check}
"""The first argument → what it does; without one of them, `overview`."""
