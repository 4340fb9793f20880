"""What `local_runner.py` does: run the pipeline, or one of the commands in `COMMANDS`."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from components.contract.errors import ConfigurationError, StorageError
from components.contract.printable import make_printable
from components.images.file_options import FileOptions
from pipeline_def.config.command_line import make_parser, parse
from pipeline_def.config.config import Config
from pipeline_def.config.options import list_options
from pipeline_def.layout import Layout
from pipeline_def.local.output.folder import ASKED, RECORDS, Output, open_output, working_folder
from pipeline_def.local.output.repair import check_metadata, repair
from pipeline_def.local.preparation import check_writable, lock_output, make_absolute, prepare
from pipeline_def.local.server.options import parse_options
from pipeline_def.runs import record as records
from pipeline_def.runs.record import RunRecord
from pipeline_def.startup import seconds_since_start

if TYPE_CHECKING:
    from pipeline_def.local.summary import Summary

_SCREEN = """usage: local_runner.py [COMMAND] [DIR] [OPTION ...]

Turns a folder of images, DIR/label/image or DIR/split/label/image, into a
trained and evaluated model that serves, on this machine. Without a folder it
takes a built-in sample, 1,797 handwritten digits.

commands
  run [DIR]      the whole pipeline; what is done without a command
  inspect DIR    says within seconds whether a run would start, and on what
  predict FILES  asks the pushed model about files or folders
  schema [DIR]   writes what the examples are like, for a person to correct
  runs           lists earlier runs, compares two, traces a pushed model
  serve          a page and a REST that answer with the pushed model

options that people use
  --output DIR|URL               everything that is written: output; gs:// s3://
  --config FILE                  YAML with any of the options
  --ingest.manifest FILE         a table of paths and labels
  --transform.size PIXELS        side of the images that the model sees
  --model.name NAME              such as cnn, resnet9, mobilenet_v2
  --model.weights imagenet|FILE  start from pretrained weights
  --training.recipe NAME         small, cifar, photos or transfer
  --training.epochs N            passes over the training images
  --augmentation.flip true       mirror images; for photographs
  --evaluation.min_accuracy X    lowest accuracy of a model that is pushed
"""
_INSPECT = """usage: local_runner.py inspect DIR [OPTION ...]

Looks at a folder of images, within seconds: classes, sizes, formats, files that
ingest would reject, network and recipe that a run would take, and what it would
write. Exits with 0 if a run would start. Takes all options of a run.
"""
_PREDICT = """usage: local_runner.py predict FILE|DIR ... [--model VERSION] [--to TABLE]

Asks a pushed model about files, and about all files below folders, paths or
URLs. Each is read as ingest reads it, so that the model sees what it saw in
training; files that ingest would reject are listed with the reason.

  --model VERSION    a version in --output, or the folder of any SavedModel of
                     this pipeline: the newest version
  --to TABLE         .parquet, .csv or .jsonl, a row for each file in the order
                     of the files; without it the first answers are printed
  --predict.top K    labels for each image: 3
  --output DIR       where the run wrote to: output
"""
_SCHEMA = """usage: local_runner.py schema [DIR] [--to FILE] [OPTION ...]

Writes the schema of a folder of images, for a person to correct and to give to
later runs as --validation.schema. Takes all options of a run.

  --to FILE      file to write: schema.pbtxt in --output
  --output DIR   everything else that is written: output
"""
_RUNS = """usage: local_runner.py runs [--output DIR]
                            [--compare A B | --lineage VERSION | --repair]

Lists the runs of an output folder, newest last, with what each changed and
reached.

  --output DIR       the folder: output
  --compare A B      writes a page: is run B better than run A, on which images,
                     and what differs. A run is its number in the list, the
                     beginning of its id, the version that it pushed, or another
                     output folder, for the newest run there
  --to FILE          the page: comparison.html in the output folder of run B
  --lineage VERSION  where a pushed model, a version or its folder, comes from,
                     down to its images
  --json             print JSON, for other programs
  --repair           set aside metadata and records that cannot be read, so that
                     the next run begins anew; pushed models stay
"""

_OF_RUNS: dict[str, dict[str, Any]] = {
    "--lineage": {},
    "--compare": {"nargs": 2},
    "--to": {},
    "--json": {"action": "store_true"},
    "--repair": {"action": "store_true"},
}
_OF_PREDICTION = ("predict.top", "predict.batch", "predict.batch_mpixels")
_VERSION = re.compile(r"^--model(?==|$)")


def run(arguments: list[str]) -> int:
    """Run the whole pipeline; return the exit status, 1 for a bug."""
    from pipeline_def.local.display.console import print_summary
    from pipeline_def.local.execution import execute

    config, _ = parse(make_parser("local_runner.py", _SCREEN), _name_folder(arguments))
    with _opened(config) as (config, output):
        layout = Layout(config.output)
        config = prepare(config, layout)
        record = execute(config, output=output)
        if record is None:
            return 1
        output.store()
        summary = _summarize(record, config, layout)
        output.store()
    pushed = output.shown(summary.pushed_model or "")
    print_summary(
        dataclasses.replace(summary, pushed_model=pushed),
        summary_file=layout.summary,
        seconds=seconds_since_start(),
    )
    return 0


@contextlib.contextmanager
def _opened(config: Config) -> Iterator[tuple[Config, Output]]:
    """Hold the output, or its working copy, into which what is in a store is brought first."""
    config = make_absolute(config)
    folder = working_folder(config)
    check_writable(folder)
    with lock_output(Layout(folder)):
        config, output = open_output(config)
        if output.url:
            print(f"Output: {output.url}, worked on in {make_printable(folder)}", flush=True)
        check_metadata(Layout(folder))
        yield config, output


def _summarize(record: RunRecord, config: Config, layout: Layout) -> Summary:
    """Write the summary, and copy the page to where it is easily found."""
    from components.storage.text_artifact import PAGE_FILE
    from pipeline_def.local.summary import summarize

    page = os.path.join(record.steps["ImageReport"].outputs["html"].uri, PAGE_FILE)
    anomalies = record.steps["ExampleValidator"].outputs["anomalies"]
    summary = summarize(record, layout, _read_warnings(anomalies, config))
    try:
        shutil.copyfile(page, layout.report)
        summary.write(layout.summary)
    except OSError as error:
        raise StorageError(f"Cannot write to {layout.output}: {error.strerror}.") from error
    return summary


def _read_warnings(anomalies: records.Output, config: Config) -> list[str]:
    """Say what validation found and the configuration lets pass."""
    from tfx.types import standard_artifacts

    from components.validation.anomalies import describe_warnings

    artifact = standard_artifacts.ExampleAnomalies()
    artifact.uri, artifact.split_names = anomalies.uri, anomalies.properties["split_names"]
    return describe_warnings(artifact, config.validation)


def inspect(arguments: list[str]) -> int:
    """Look at a folder, the first argument or `--data`; return 0 if a run on it would start."""
    from pipeline_def.local import inspection

    parser = make_parser("local_runner.py inspect", _INSPECT)
    config, _ = parse(parser, _name_folder(arguments))
    if config.data is None:
        raise ConfigurationError("Name the folder: local_runner.py inspect DIR.")
    inspection.inspect(make_absolute(config))
    return 0


def schema(arguments: list[str]) -> int:
    """Run the steps up to SchemaGen, and write what it inferred to a file."""
    from pipeline_def.local.execution import execute

    parser = make_parser("local_runner.py schema", _SCHEMA, own={"--to": {}})
    config, options = parse(parser, _name_folder(arguments))
    validation = dataclasses.replace(config.validation, schema=None)
    config = dataclasses.replace(config, validation=validation)
    with _opened(config) as (config, output):
        layout = Layout(config.output)
        target = os.path.abspath(options["to"] or layout.schema)
        record = execute(prepare(config, layout), output=output, last="SchemaGen")
        if record is None:
            return 1
        from pipeline_def.local.schema_command import write_schema

        write_schema(record.steps["SchemaGen"].outputs["schema"].uri, target)
        output.store()
    shown = make_printable(target)
    print(f"\nSchema: {shown}\n        Correct it, and run with --validation.schema {shown}")
    return 0


def runs(arguments: list[str]) -> int:
    """Print the runs of the output folder, where a pushed model comes from, or compare two."""
    from pipeline_def.runs.table import show_lineage, show_runs

    others = list_options().keys() - {"output"}
    parser = make_parser("local_runner.py runs", _RUNS, hidden=others, own=_OF_RUNS)
    config, options = parse(parser, arguments)
    if options["repair"]:
        return _repair(Layout(working_folder(make_absolute(config))))
    if options["to"] and not options["compare"]:
        raise ConfigurationError("--to names the page of two runs: add --compare A B.")
    # A comparison reads artifacts too.
    names = None if options["compare"] else RECORDS
    config, opened = open_output(make_absolute(config), names)
    output = config.output
    if options["compare"]:
        from pipeline_def.local.comparison_command import show_comparison

        first, second = options["compare"]
        show_comparison((first, second), output, to=options["to"], as_json=options["json"])
        opened.store()
    elif options["lineage"]:
        wanted = opened.found(options["lineage"])
        show_lineage(output, wanted, as_json=options["json"])
    else:
        show_runs(output, as_json=options["json"])
    return 0


def _repair(layout: Layout) -> int:
    if not os.path.isdir(layout.output):
        raise StorageError(f"There is no folder {layout.output}: name it with --output.")
    with lock_output(layout):
        done = [*repair(layout)]
    for sentence in done or [f"Nothing in {layout.output} needs repair."]:
        print(make_printable(sentence))
    return 0


def predict(arguments: list[str]) -> int:
    """Ask a pushed model about files; return 1 if it could answer for none of them."""
    reading = {f"ingest.{field.name}" for field in dataclasses.fields(FileOptions)}
    hidden = list_options().keys() - {"output", *_OF_PREDICTION, *reading}
    # `--model` alone is the section of a run's configuration.
    own: dict[str, dict[str, Any]] = {"--version": {}, "--to": {}}
    parser = make_parser("local_runner.py predict", _PREDICT, hidden=hidden, own=own)
    files, rest = _split_files(arguments)
    config, options = parse(parser, [_VERSION.sub("--version", word) for word in rest])
    if not files:
        raise ConfigurationError("Name files or folders: local_runner.py predict DIR.")
    from pipeline_def.local.predict_command import show_predictions

    wanted = options["version"]
    config, _ = open_output(make_absolute(config), ASKED)
    tally = show_predictions(config, files, model=wanted, to=options["to"])
    return 0 if tally.by_status["answered"] else 1


def _split_files(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide the words of a command line into files, and options with their values.

    Each option has one value. What follows `--` is files.
    """
    files: list[str] = []
    options: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            files += words
        elif word in ("-h", "--help", "--help-all"):
            return files, [*options, word, *words]
        elif not word.startswith("-"):
            files.append(word)
        else:
            options.append(word)
            if "=" not in word:
                options.append(_next_value(word, words))
    return files, options


def _next_value(option: str, words: Iterator[str]) -> str:
    value = next(words, None)
    if value is None:
        raise ConfigurationError(f"{option} needs a value.")
    return value


def serve(arguments: list[str]) -> int:
    """Answer requests with the pushed model, until it is stopped."""
    options = parse_options(arguments)
    from pipeline_def.local.server import command

    with contextlib.suppress(KeyboardInterrupt):
        command.serve(options)
    return 0


def _name_folder(arguments: list[str]) -> list[str]:
    """Let the first argument be the folder of images.

    Raises:
        ConfigurationError: there is no such folder, and it looks like the name of a command.
    """
    if not arguments or arguments[0].startswith("-"):
        return arguments
    first = arguments[0]
    meant = difflib.get_close_matches(first, COMMANDS, n=1)
    if meant and not os.path.exists(first):
        raise ConfigurationError(
            f"There is neither a command nor a folder {first}: did you mean {meant[0]}?"
        )
    return ["--data", *arguments]


COMMANDS = {
    "run": run,
    "inspect": inspect,
    "predict": predict,
    "runs": runs,
    "schema": schema,
    "serve": serve,
}
"""The first argument → what it does; without one of them, `run`."""
