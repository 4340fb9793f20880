"""`local_runner.py predict`: the predictions of a pushed model for files, as a table."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from rich.console import Console

from components.contract.errors import ConfigurationError
from components.contract.printable import format_duration, make_printable, name_some
from components.host.stopping import before_stopping
from components.images.options import FileOptions
from components.predict.files import count_files, find_sources
from components.predict.flow import FileOutcome, StatusCounts, predict
from components.predict.model import RankingModel, import_quietly
from components.predict.table import check_table, write_table
from pipeline_def.config.command_line import parse
from pipeline_def.config.config import Config
from pipeline_def.local.output.folder import MODELS, open_output
from pipeline_def.local.output.locations import find_runs
from pipeline_def.local.pushed_model import find_model, find_options, find_unblessed
from pipeline_def.local.run_display import (
    PLAIN_INTERVAL,
    list_rows,
    make_bars,
    print_row,
    print_whole,
    update_bar,
)
from pipeline_def.runs.table import print_table

USAGE = """usage: local_runner.py predict FILE|DIR ... [--model VERSION] [--to TABLE]

Predicts files, and all files below folders, with a pushed model; paths or URLs.
Images are read as ingest reads them, so that the model sees what it saw in
training; files that ingest would reject are listed with the reason.

  --model VERSION    a version in --output, or the folder of any SavedModel of
                     this pipeline: the newest version
  --unblessed        the model of the newest run, although it is not blessed
  --to TABLE         .parquet, .csv or .jsonl, one row per file in the order of
                     the files, replaced if it exists; without it the first
                     predictions are printed
  --predict.top K    labels per image: 3
  --output DIR       output folder of the run: output
"""

_MOST_ROWS = 10
_MOST_LABELS = 10

_Item = TypeVar("_Item")


def predict_files(arguments: Sequence[str]) -> int:
    """Predict the files on a command line; return 1 if none could be predicted."""
    reading = {f"ingest.{field.name}" for field in dataclasses.fields(FileOptions)}
    config, options = parse(
        arguments,
        prog="local_runner.py predict",
        usage=USAGE,
        only={"output", "predict.top", *reading},
        extra={"model": 1, "to": 1, "unblessed": 0},
        positional="files",
    )
    if not options["files"]:
        raise ConfigurationError("Name files or folders: local_runner.py predict DIR.")
    if options["model"] and options["unblessed"]:
        raise ConfigurationError("--model and --unblessed both choose the model: give one.")
    output = open_output(find_runs(config), MODELS).folder
    config = dataclasses.replace(config, output=output)
    lost = f"; {options['to']} is not written" if options["to"] else ""
    with before_stopping(lambda: f"local_runner.py: stopped{make_printable(lost)}."):
        tally = _predict(config, options)
    return 0 if tally.by_status["answered"] else 1


def _predict(config: Config, options: Mapping[str, Any]) -> StatusCounts:
    """Predict files; print the predictions or write a table."""
    to = options["to"]
    if to:
        check_table(to)
    sources = find_sources(options["files"])
    warning = ""
    if options["unblessed"]:
        folder, warning = find_unblessed(config.output)
    else:
        folder = find_model(config.output, options["model"])
    reading = find_options(config, folder)
    tally = StatusCounts(count_files(sources))
    print_whole("Model", folder)
    if warning:
        print_row("Verdict", warning, style="yellow")
    import_quietly()
    served = RankingModel(folder, top=config.predict.top)
    started = time.monotonic()
    outcomes = tally.count(predict(sources, served.predict, reading))
    replaced = bool(to) and os.path.exists(to)
    if to:
        outcomes = write_table(to, outcomes, top=config.predict.top)
    first, refused = _keep_first(_with_progress(outcomes, total=tally.total))
    seconds = time.monotonic() - started
    if not to:
        titles = ("File", "Label", "Prob.", "Next")[: 4 if config.predict.top > 1 else 3]
        rows = (_row(outcome)[: len(titles)] for outcome in first)
        print_table(titles, rows, breaks=("File", "Label", "Next"))
    for title, text in _summarize(tally, refused, seconds):
        print_row(title, text)
    if to:
        print_whole("Table", f"{to} (replaced)" if replaced else to)
    return tally


def _with_progress(outcomes: Iterable[_Item], *, total: int) -> Iterator[_Item]:
    """Yield one item per file, with a bar, or without a terminal a line every ten seconds."""
    console = Console(highlight=False)
    bars, printed = make_bars(console), time.monotonic()
    with bars if console.is_terminal else contextlib.nullcontext():
        bars.add_task("Files", total=total, note="")
        [task] = bars.tasks
        for done, outcome in enumerate(outcomes, start=1):
            text = f"{done:,} of {total:,}"
            update_bar(bars, task, done=done, total=total, note=text)
            if not console.is_terminal and time.monotonic() - printed > PLAIN_INTERVAL:
                printed = time.monotonic()
                console.print(f"{text} files", soft_wrap=True)
            yield outcome


def _keep_first(outcomes: Iterable[FileOutcome]) -> tuple[list[FileOutcome], list[FileOutcome]]:
    """Return the first predictions and the first rejected files."""
    first: list[FileOutcome] = []
    refused: list[FileOutcome] = []
    for outcome in outcomes:
        kept = {"answered": first, "refused": refused}.get(outcome.status)
        if kept is not None and len(kept) < _MOST_ROWS:
            kept.append(outcome)
    return first, refused


def _row(outcome: FileOutcome) -> Sequence[str]:
    (label, probability), *others = outcome.ranking
    more = ", ".join(f"{name} {value:.3f}" for name, value in others)
    mark = " (unknown)" if outcome.known is False else ""
    texts = (outcome.file, f"{label}{mark}", f"{probability:.3f}", more)
    return tuple(map(make_printable, texts))


def _summarize(
    tally: StatusCounts, refused: Sequence[FileOutcome], seconds: float
) -> Iterator[tuple[str, str]]:
    answered = tally.by_status["answered"]
    speed = answered / max(seconds, 1e-9)
    rate = f", {speed:,.{0 if speed >= 10 else 1}f} images/s" if answered else ""
    yield "Files", f"{tally}; {format_duration(seconds)}{rate}"
    if labels := [f"{label} {count:,}" for label, count in tally.labels.most_common()]:
        yield "Labels", name_some(labels, _MOST_LABELS)
    if tally.unknown:
        yield "Unknown", f"{tally.unknown:,} of {answered:,} images: unlike those of training"
    texts = [f"{outcome.file}: {outcome.category}: {outcome.reason}" for outcome in refused]
    yield from list_rows("Refused", texts)
    if (others := tally.by_status["refused"] - len(refused)) > 0:
        yield "", f"… and {others:,} more; --to FILE lists them all"
