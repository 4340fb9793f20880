"""The commands of `local_runner.py`."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import operator
import os
import platform
import shutil
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.contract.errors import ConfigurationError, StorageError
from components.contract.printable import make_printable, quote
from pipeline_def.config.command_line import parse
from pipeline_def.config.config import Config
from pipeline_def.config.options import list_options
from pipeline_def.layout import Layout
from pipeline_def.local import usage
from pipeline_def.local.output.folder import RECORDS, Output, open_output, working_folder
from pipeline_def.local.output.locations import choose_output
from pipeline_def.local.output.repair import check_metadata, check_places, repair
from pipeline_def.local.preparation import (
    check_runner,
    check_writable,
    find_runs,
    lock_output,
    make_absolute,
    prepare,
)
from pipeline_def.local.server.options import parse_options
from pipeline_def.runs.record import RunRecord, read_records
from pipeline_def.runs.selection import list_evaluated
from pipeline_def.startup import seconds_since_start
from pipeline_def.steps import EXAMPLE_VALIDATOR, REPORT, SCHEMA_GEN
from pipeline_def.training.distribution.cluster import Cluster

if TYPE_CHECKING:
    from pipeline_def.local.results import Summary

# Option → how many values it takes.
_OF_RUNS = {
    "lineage": 1,
    "compare": 2,
    "to": 1,
    "json": 0,
    "repair": 0,
    "send": 0,
    "prune": 1,
    "yes": 0,
}
_MOST_WORKERS = 10_000


def run(arguments: list[str]) -> int:
    """Run the whole pipeline; return the exit status, 1 for an unexpected error."""
    if arguments == ["--version"]:
        return _print_version()
    config, options = parse(
        _name_folder(arguments),
        prog="local_runner.py",
        usage=usage.RUN,
        own={"new_task": 0},
        find_values=_find_values,
    )

    cluster = _find_cluster(config)
    if cluster and not cluster.is_chief:
        from pipeline_def.training.distribution.gathering import take_part

        take_part(cluster)
        return 0
    from pipeline_def.tracking.send import reporting
    from pipeline_def.training.distribution.gathering import gathering

    with _opened(config) as (config, output):
        place = output.url or config.output
        with reporting(config.tracking, config.output), gathering(cluster, place):
            if not _run(config, output, new_task=options["new_task"]):
                return 1
        output.store()
    return 0


def _find_cluster(config: Config) -> Cluster | None:
    """Return the processes that train together; None if this one trains alone."""
    cluster = Cluster.from_environment()
    if cluster is None or cluster.size == 1:
        return None
    cluster.check_accelerator(config.training.accelerator)
    return cluster


def _run(config: Config, output: Output, *, new_task: bool) -> bool:
    """Run the pipeline and print its summary; return whether it came to its end."""
    from pipeline_def.local.execution import execute

    layout = Layout(config.output)
    seen = prepare(config, layout, new_task=new_task)
    config = seen.config
    record = execute(config, output=output, seen=seen)
    if record is None:
        return False
    output.store()
    summary = _summarize(record, config, layout, missing_weights=seen.missing_weights)
    output.store()
    from pipeline_def.local.display.summary_table import print_summary

    pushed = output.shown(summary.pushed_model or "")
    print_summary(
        dataclasses.replace(summary, pushed_model=pushed),
        summary_file=layout.summary,
        output=output.url or config.output,
        evaluated=list_evaluated(read_records(config.output)),
        seconds=seconds_since_start(),
    )
    return True


def _find_values(config: Config) -> dict[str, Any]:
    """Return option → value for the images of `config.data`, if it is set."""
    if config.data is None:
        return {}
    from components.ingest.lookup import list_source
    from pipeline_def.local.first_look import look

    config = make_absolute(config)
    resolved = look(list_source(str(config.data), config.ingest), config).config
    return {name: operator.attrgetter(name)(resolved) for name in list_options()}


def _print_version() -> int:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
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
    folder = working_folder(config)
    if reason:
        print(f"Output: {make_printable(place)}, {reason}", flush=True)
    check_writable(folder)
    with lock_output(Layout(folder)):
        config, output = open_output(config)
        if output.url:
            print(f"Output: {output.url}, working copy {make_printable(folder)}", flush=True)
        check_places(Layout(folder))
        check_metadata(Layout(folder))
        yield config, output


def _summarize(
    record: RunRecord, config: Config, layout: Layout, *, missing_weights: str
) -> Summary:
    """Write the summary, and copy the report to the output folder."""
    from components.storage.tfx_filesystem import PAGE_FILE
    from components.validation.findings import AnomalyFiles, describe_warnings
    from pipeline_def.local.results import summarize

    page = os.path.join(record.steps[REPORT.id].outputs["html"].uri, PAGE_FILE)
    anomalies = record.steps[EXAMPLE_VALIDATOR.id].outputs["anomalies"]
    found = AnomalyFiles(anomalies.uri, anomalies.properties["split_names"])
    summary = summarize(record, layout, describe_warnings(found, config.validation))
    summary = dataclasses.replace(summary, missing_weights=missing_weights)
    try:
        shutil.copyfile(page, summary.paths["report"])
        summary.write(layout.summary)
    except OSError as error:
        raise StorageError(f"Cannot write {error.filename}: {error.strerror}.") from error
    return summary


def inspect(arguments: list[str]) -> int:
    """Inspect a folder, the first argument or `--data`; return 0 if a run would start."""
    from pipeline_def.local import inspection

    prog = "local_runner.py inspect"
    config, options = parse(
        _name_folder(arguments),
        prog=prog,
        usage=usage.INSPECT,
        own={"plan": 1},
        find_values=_find_values,
    )
    if config.data is None:
        raise ConfigurationError("Name a folder: local_runner.py inspect DIR.")
    workers = options["plan"]
    if workers is not None and not (workers.isdecimal() and 0 < int(workers) <= _MOST_WORKERS):
        raise ConfigurationError(
            f"--plan is {quote(workers)}: give a number of workers from 1 to {_MOST_WORKERS:,}."
        )
    inspection.inspect(make_absolute(config), workers=workers and int(workers))
    return 0


def schema(arguments: list[str]) -> int:
    """Run the steps up to SchemaGen, and write the inferred schema to a file."""
    from pipeline_def.local.execution import execute

    config, options = parse(
        _name_folder(arguments), prog="local_runner.py schema", usage=usage.SCHEMA, own={"to": 1}
    )
    validation = dataclasses.replace(config.validation, schema=None)
    config = dataclasses.replace(config, validation=validation)
    with _opened(config) as (config, output):
        layout = Layout(config.output)
        target = os.path.abspath(options["to"] or layout.schema)
        seen = prepare(config, layout, new_task=True)
        config = seen.config
        record = execute(config, output=output, last=SCHEMA_GEN.id, seen=seen)
        if record is None:
            return 1
        from pipeline_def.local.schema_command import write_schema

        write_schema(record.steps[SCHEMA_GEN.id].outputs["schema"].uri, target)
        output.store()
    shown = make_printable(target)
    print(f"\nSchema: {shown}\n        Review it, then run with --validation.schema {shown}")
    return 0


def runs(arguments: list[str]) -> int:
    """List the runs of an output folder, compare two, trace a model, send or prune them."""
    from pipeline_def.runs.table import show_lineage, show_runs

    others = {n for n in list_options() if n != "output" and not n.startswith("tracking.")}
    config, options = parse(
        arguments, prog="local_runner.py runs", usage=usage.RUNS, hidden=others, own=_OF_RUNS
    )
    if options["repair"]:
        return _repair(Layout(working_folder(find_runs(config))))
    if options["to"] and not options["compare"]:
        raise ConfigurationError("--to needs --compare A B.")
    if options["yes"] and not options["prune"]:
        raise ConfigurationError("--yes needs --prune N.")
    if options["send"]:
        return _send(config)
    if options["prune"]:
        return _prune(config, options["prune"], confirmed=options["yes"])
    # A comparison also reads artifacts.
    names = None if options["compare"] else RECORDS
    config, opened = open_output(find_runs(config), names)
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


def _send(config: Config) -> int:
    """Send runs to the services that lack them; return 1 if a service did not take one."""
    from pipeline_def.tracking.send import send_missing

    config, opened = open_output(find_runs(config))
    results = [*send_missing(config.output, config.tracking)]
    for result in results:
        print(make_printable(result.text))
    if not results:
        print("Every run has been sent, or none has a service in its section tracking.")
    opened.store(RECORDS)
    return 0 if all(result.received for result in results) else 1


def _prune(config: Config, wanted: str, *, confirmed: bool) -> int:
    from pipeline_def.local.prune_command import prune

    config = find_runs(config)
    with lock_output(Layout(working_folder(config))):
        config, opened = open_output(config)
        prune(config.output, wanted, confirmed=confirmed)
        opened.store()
    return 0


def _repair(layout: Layout) -> int:
    if not os.path.isdir(layout.output):
        raise StorageError(f"There is no folder {layout.output}: set --output.")
    with lock_output(layout):
        done = [*repair(layout)]
    for message in done or [f"Nothing in {layout.output} needs repair."]:
        print(make_printable(message))
    return 0


def predict(arguments: list[str]) -> int:
    """Predict files with a pushed model; return 1 if it could predict none of them."""
    from pipeline_def.local import predict_command

    return predict_command.predict_files(arguments)


def serve(arguments: list[str]) -> int:
    """Serve the pushed model until interrupted."""
    options = parse_options(arguments)
    from pipeline_def.local.server import command

    with contextlib.suppress(KeyboardInterrupt):
        command.serve(options)
    return 0


def weights(arguments: list[str]) -> int:
    """Fetch, list or install ImageNet's weights."""
    from pipeline_def.local import weights_command

    return weights_command.manage(arguments)


def rollback(arguments: list[str]) -> int:
    """Make an earlier pushed version the one in use."""
    from pipeline_def.local import rollback_command

    return rollback_command.roll_back(arguments)


def watch(arguments: list[str]) -> int:
    """Compare served images with those of training; return 1 if they differ."""
    from pipeline_def.local import watch_options

    options = watch_options.parse_options(arguments)
    from pipeline_def.local import watch_command

    return watch_command.watch(options)


def review(arguments: list[str]) -> int:
    """Let a person decide about a run's suspects, until interrupted."""
    from pipeline_def.local.review import options

    parsed = options.parse_options(arguments)
    if parsed.apply_to is not None:
        from pipeline_def.local.review import corrected_copy

        corrected_copy.apply_to(parsed.apply_to, parsed)
        return 0
    from pipeline_def.local.review import command

    with contextlib.suppress(KeyboardInterrupt):
        command.review(parsed)
    return 0


def export_data(arguments: list[str]) -> int:
    """Write the images that a run has ingested in a format for other programs."""
    from pipeline_def.local.export import options

    parsed = options.parse_options(arguments)
    from pipeline_def.local.export import command

    command.export(parsed)
    return 0


def _name_folder(arguments: list[str]) -> list[str]:
    """Turn a first argument that is a folder into `--data`.

    Raises:
        ConfigurationError: there is no such folder, and it looks like a misspelled command; or
            `--data` names the images, too.
    """
    if not arguments or arguments[0].startswith("-"):
        return arguments
    first = arguments[0]
    similar = difflib.get_close_matches(first, COMMANDS, n=1, cutoff=0.5)
    if similar and "/" not in first and not os.path.exists(first):
        raise ConfigurationError(f"Unknown command {quote(first)}. Did you mean '{similar[0]}'?")
    if any(word.partition("=")[0] == "--data" for word in arguments[1:]):
        raise ConfigurationError(f"{quote(first)} and --data both name the images: give one.")
    return ["--data", *arguments]


COMMANDS = {
    "run": run,
    "inspect": inspect,
    "predict": predict,
    "runs": runs,
    "schema": schema,
    "serve": serve,
    "watch": watch,
    "rollback": rollback,
    "weights": weights,
    "review": review,
    "export-data": export_data,
}
"""The first argument → its function; without a command, `run`."""
