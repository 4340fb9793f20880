"""`local_runner.py run`: runs the whole pipeline."""

import contextlib
import dataclasses
import os
import platform
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from components.contract.errors import ConfigurationError
from components.contract.printable import make_printable, quote
from components.host.startup import seconds_since_start
from components.trainer.loop.cluster import Cluster
from pipeline_def.config.command_line import parse
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.output.checks import (
    check_metadata,
    check_runner,
    check_writable,
    lock_output,
)
from pipeline_def.local.output.folder import Output, open_output, working_folder
from pipeline_def.local.output.locations import choose_output, make_absolute
from pipeline_def.local.preparation import prepare, use_corrections
from pipeline_def.runs.history import list_evaluated
from pipeline_def.runs.record import read_records

USAGE = """usage: local_runner.py [COMMAND] [DIR] [OPTION ...]

Trains and evaluates a model on a folder of images, DIR/label/image or
DIR/split/label/image, on this machine, and pushes it for serving if it is good
enough. Without any argument it runs a sample of 1,797 handwritten digits.

commands
  run [DIR]      run the whole pipeline; the default command
  inspect DIR    report within seconds whether a run would start, and how
  review         look at images with doubtful labels, and correct them
  predict FILES  predict files or folders with the pushed model
  runs           list earlier runs, or compare two
  serve          serve the pushed model: a web page and a REST API
  rollback       make an earlier pushed version the one in use
  help COMMAND   describe a command; --version prints versions

common options
  --output DIR|URL               output/NAME for images in NAME; gs://, s3://
  --config FILE                  YAML file with any of the options; its paths
                                 start in the current folder
  --ingest.manifest FILE         table of paths and labels
  --transform.size PIXELS        side of the images that the model sees
  --model.name NAME              such as cnn, resnet9, efficientnet_lite2
  --model.weights none|FILE      start from random weights, or those of a file
  --training.recipe NAME         small, cifar, photos or transfer
  --training.epochs N            passes over the training images
  --augmentation.flip true       mirror images; for photographs
  --evaluation.min_accuracy X    lowest accuracy of a model that is pushed
  --new_task                     replace a current model of other labels
  --sample                       run the handwritten digits with these options
"""


def run(arguments: list[str]) -> int:
    """Run the whole pipeline; return the exit status, 1 for an unexpected error."""
    if arguments == ["--version"]:
        return _print_version()
    config, options = parse(
        name_folder(arguments),
        prog="local_runner.py",
        usage=USAGE,
        extra={"new_task": 0, "sample": 0},
    )
    _check_images(config, sample=options["sample"] or not arguments)
    _require_one_process()
    with _opened(config) as (config, output):
        with reporting(config):
            if not _run(config, output, new_task=options["new_task"]):
                return 1
        output.store()
    return 0


def _require_one_process() -> None:
    cluster = Cluster.from_environment()
    if cluster and cluster.size > 1:
        raise ConfigurationError(
            f"TF_CONFIG lists {cluster.size} processes, but local_runner.py trains in one: unset "
            "it, or train on Kubeflow, which starts kubeflow.workers by itself."
        )


@contextlib.contextmanager
def reporting(config: Config) -> Iterator[None]:
    """Report the run that is recorded in the context to MLflow, also if it failed."""
    runs = Path(Layout(config.output).runs)
    before = set(runs.glob("*"))
    try:
        yield
    finally:
        if config.tracking.mlflow and not isinstance(sys.exception(), KeyboardInterrupt):
            from pipeline_def.tracking import report_run

            for folder in sorted({*runs.glob("*")} - before):
                for record in read_records(config.output, folder.name):
                    print(make_printable(report_run(record, config.tracking)), flush=True)


def _run(config: Config, output: Output, *, new_task: bool) -> bool:
    """Run the pipeline and print its summary; return whether it came to its end."""
    from pipeline_def.local.execution import execute

    seen = prepare(config, new_task=new_task)
    record = execute(seen.config, output=output, seen=seen)
    if record is None:
        return False
    output.store()
    from pipeline_def.local.results import write_summary
    from pipeline_def.local.summary_table import print_summary

    layout = Layout(config.output)
    summary = write_summary(record, layout, validation=seen.config.validation)
    output.store()
    pushed = output.shown(summary["pushed_model"] or "")
    print_summary(
        summary | {"pushed_model": pushed},
        summary_file=layout.summary,
        output=output.url or config.output,
        evaluated=list_evaluated(read_records(config.output)),
        seconds=seconds_since_start(),
    )
    return True


def _print_version() -> int:
    pyproject = Path(__file__).parents[3] / "pyproject.toml"
    if pyproject.exists():
        project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    else:  # Installed as a package.
        project = metadata.metadata("tfx-image-pipeline").json
    libraries = ", ".join(f"{name} {metadata.version(name)}" for name in ("tfx", "tensorflow"))
    python = platform.python_version()
    print(f"{project['name']} {project['version']} ({libraries}, python {python})")
    return 0


@contextlib.contextmanager
def _opened(config: Config) -> Iterator[tuple[Config, Output]]:
    """Lock the output, or its working copy after fetching it from the store."""
    check_runner(config)
    place, reason = choose_output(config)
    config = make_absolute(dataclasses.replace(config, output=place))
    folder = working_folder(config.output)
    if reason:
        print(f"Output: {make_printable(place)}, {reason}", flush=True)
    check_writable(folder)
    with lock_output(Layout(folder)):
        output = open_output(config.output)
        config = dataclasses.replace(config, output=folder)
        if output.url:
            print(f"Output: {output.url}, working copy {make_printable(folder)}", flush=True)
        check_metadata(Layout(folder))
        yield use_corrections(config, output.url or config.output), output


def _check_images(config: Config, *, sample: bool) -> None:
    """Raise `ConfigurationError` unless either images or the built-in `sample` are wanted."""
    if config.data is None and not sample:
        raise ConfigurationError(
            "There are no images to run on: name their folder, as in `local_runner.py DIR`, or try "
            "the built-in handwritten digits with --sample."
        )
    if config.data is not None and sample:
        raise ConfigurationError("--data and --sample both name the images: give one.")


def _looks_like_option(word: str) -> bool:
    """Return whether an argument is like epochs=3, which `parse` rejects with a suggestion."""
    name, equals, _ = word.partition("=")
    return bool(equals) and name.replace(".", "_").isidentifier() and not os.path.exists(word)


def name_folder(arguments: list[str]) -> list[str]:
    """Turn a first argument that is not an option into `--data`.

    Raises:
        ConfigurationError: `--data` names the images, too.
    """
    if not arguments or arguments[0].startswith("-") or _looks_like_option(arguments[0]):
        return arguments
    if any(word.partition("=")[0] == "--data" for word in arguments[1:]):
        raise ConfigurationError(
            f"{quote(arguments[0])} and --data both name the images: give one."
        )
    return ["--data", *arguments]
