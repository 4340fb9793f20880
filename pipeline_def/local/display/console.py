"""What a person sees of a run: a line per step, a bar on a terminal, a table at the end."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shlex
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.text import Text

from components.contract.printable import format_duration, make_printable
from components.contract.progress import LOGGER
from components.storage.artifact_files import on_disk
from pipeline_def.local.display.progress_bar import clock, make_bar
from pipeline_def.local.display.rows import print_row, print_whole, wrap
from pipeline_def.local.display.step_progress import StepProgress
from pipeline_def.local.display.step_times import list_times

if TYPE_CHECKING:
    from pipeline_def.local.summary import Summary
    from pipeline_def.runs.record import Step

# Without a terminal there is a line of progress at most this often, seconds.
_PLAIN_INTERVAL = 10.0
_MOST_WARNINGS = 5
_MOST_FINDINGS = 3
# Characters of the name of a class; a folder can have one of 255 bytes.
_LONGEST_NAME = 60
# Outcome of the verdict → what stands before it.
_SIGNS = {"blessed": ("✓", "green"), "undecided": ("?", "yellow"), "refused": ("✗", "red")}


@contextlib.contextmanager
def redirect_output(log_file: str) -> Iterator[TextIO]:
    """Send what this process and its C++ libraries print to `log_file`.

    TensorFlow, Beam and Google's libraries print pages of warnings, many of them below Python's
    streams; so the file descriptors themselves are redirected.

    Yields:
        A stream that still reaches the standard output.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    with open(log_file, "ab") as log, _duplicate(sys.stdout) as terminal:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield terminal
        finally:
            for number, stream in enumerate((sys.stdout, sys.stderr), start=1):
                _flush(stream, number)
                os.dup2(saved[number - 1], number)
                os.close(saved[number - 1])


def _flush(stream: TextIO, descriptor: int) -> None:
    """Write what is left in a stream; what a full disk does not take must not be shown later."""
    try:
        stream.flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), descriptor)
        stream.flush()


def _duplicate(stream: TextIO) -> TextIO:
    """Open another stream to where `stream` writes, which stays when that is redirected."""
    return os.fdopen(os.dup(1), "w", encoding=stream.encoding, errors="backslashreplace")


class RunDisplay(logging.Handler):
    """Shows the steps of a run as they start, progress and end.

    It is an observer of the run, and the handler of the components' progress records.
    """

    def __init__(self, stream: TextIO) -> None:
        """Draw on `stream`."""
        super().__init__()
        self._console = Console(file=stream, highlight=False)
        self._total = 0
        self._ended = 0
        self.step = ""
        """The step that runs, or ran last; "" before the first."""
        self._printed = 0.0
        self._progress = StepProgress()
        self._bars = make_bar(self._console, self.time_left)

    @contextlib.contextmanager
    def running(self, *, total: int) -> Iterator[None]:
        """Show the progress of a run of `total` steps while the context is open."""
        self._total = total
        LOGGER.setLevel(logging.INFO)
        LOGGER.addHandler(self)
        bars = self._bars if self._console.is_terminal else contextlib.nullcontext()
        try:
            with bars:
                yield
        finally:
            LOGGER.removeHandler(self)

    def step_started(self, name: str) -> None:
        """Begin the line of step `name`."""
        self.step, self._printed = name, time.monotonic()
        self._progress = StepProgress()
        if self._console.is_terminal:
            self._bars.add_task(name, total=None, note="")
        else:
            self._print(f"{name} …")

    def step_ended(self, name: str, step: Step) -> None:
        """End the line of step `name`."""
        for task in self._bars.task_ids:
            self._bars.remove_task(task)
        for line in self._progress.skipped():
            self._print(f"{name:<17} {line}")
        cached = step.state == "cached"
        took = "unchanged, taken from the cache" if cached else f"{step.seconds:.1f} s"
        self._print(f"{name:<17} {took}")
        self._ended += 1

    def say(self, text: str) -> None:
        """Print a sentence before the steps."""
        self._console.print(Text(f"{'':8} {make_printable(text)}"), soft_wrap=True)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a progress record of the step that runs."""
        note = make_printable(record.getMessage())
        if progress := getattr(record, "progress", None):
            self._update(note, *progress, lasting=getattr(record, "lasting", False))

    def time_left(self) -> str:
        """Say how long the step that runs still takes; "" while nobody can tell."""
        seconds = self._progress.seconds_left()
        return "" if seconds is None else f"{clock(seconds)} left"

    def _update(self, note: str, done: float, total: float, *, lasting: bool) -> None:
        kept = self._progress.keep(note, done=done, total=total) if lasting else []
        self._progress.report(done, total)
        for task in self._bars.task_ids:
            self._bars.update(task, completed=done, total=total, note=note)
        due = time.monotonic() - self._printed > _PLAIN_INTERVAL
        if not kept and due and not lasting and not self._console.is_terminal:
            kept = [note]
        for line in kept:
            self._printed = time.monotonic()
            self._print(f"{self.step:<17} {line}", self.time_left())

    def _print(self, text: str, end: str = "") -> None:
        """Print a line of the step that runs; in a narrow terminal `text` is cut, not `end`."""
        number = f"[{self._ended + 1}/{self._total}]"
        line, end = Text(f"{number:>8} {text}"), f" {end}" if end else ""
        if self._console.is_terminal:
            line.truncate(self._console.width - len(end), overflow="ellipsis")
        self._console.print(line.append(end), soft_wrap=True)


def print_summary(summary: Summary, *, summary_file: str, seconds: float) -> None:
    """Print the verdict, the table and the next commands of a run to the standard output."""
    console = Console(highlight=False)
    sign, colour = _SIGNS[summary.outcome]
    console.print()
    for line in wrap(console, f"{sign} {summary.headline}"):
        console.print(Text(line, f"bold {colour}"), soft_wrap=True)
    for name, text in (*_model_rows(summary), *_data_rows(summary), *_findings(summary)):
        print_row(console, name, text)
    console.print()
    for name, text in _places(summary, summary_file):
        print_whole(console, name, text)
    console.print()
    for number, text in enumerate(list_times(summary.nodes, seconds, width=console.width)):
        print_row(console, "" if number else "Times", text)
    console.print(f"\nDone in {format_duration(seconds)}.", soft_wrap=True)


def _model_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    low, high = summary.accuracy_interval
    judge = summary.evaluated_on
    if judge == summary.weights_chosen_on:
        judge += ", which also chose the weights: optimistic"
    accuracy = summary.metrics["accuracy"]
    yield "Accuracy", f"{accuracy:.4f} on {judge}; with 95 % confidence {low:.3f} to {high:.3f}"
    yield "Reasons", summary.blessing_reason
    yield "Baseline", _baseline(summary)


def _data_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    counts = ", ".join(f"{count:,} {split}" for split, count in summary.examples.items())
    yield "Images", f"{counts}; {summary.rejected:,} rejected, {summary.skipped:,} skipped"
    if summary.duplicates:
        conflicts, leaks = summary.label_conflicts, summary.in_several_splits
        more = f"; images under several labels: {conflicts:,}" if conflicts else ""
        more += f"; in several splits: {leaks:,}" if leaks else ""
        yield "Duplicates", f"{summary.duplicates:,} extra copies{more}"
    for number, warning in enumerate(summary.warnings[:_MOST_WARNINGS]):
        yield "" if number else "Warnings", warning
    if (others := len(summary.warnings) - _MOST_WARNINGS) > 0:
        yield "", f"… and {others} more, in the report"
    yield "Classes", _shorten(summary.classes)
    rate, waited = (summary.training[key] for key in ("images_per_second", "input_wait_fraction"))
    yield "Training", f"{rate:,.0f} images/s, {waited:.1%} of the time waiting for input"
    if summary.training["advice"]:
        yield "", summary.training["advice"]
    if retries := summary.store_retries:
        causes = ", ".join(f"{count:,} {cause}" for cause, count in retries.items())
        yield "Retries", f"{sum(retries.values()):,} requests to stores were repeated: {causes}"


def _places(summary: Summary, summary_file: str) -> Iterator[tuple[str, str]]:
    """Yield where things are, and the commands that show them."""
    paths = {name: shlex.quote(_shown(path)) for name, path in summary.paths.items()}
    yield "Report", paths["report"]
    yield "Numbers", shlex.quote(_shown(summary_file))
    model = shlex.quote(_shown(summary.pushed_model)) if summary.pushed_model else ""
    yield "Model", model or "not pushed"
    commands = [f"uv run tensorboard --logdir {paths['training_logs']}"]
    if model:
        commands.insert(0, f"uv run saved_model_cli show --all --dir {model}")
    if summary.rejected:
        commands.append(f"less {paths['rejects']}")
    if summary.duplicates:
        commands.append(f"less {paths['duplicates']}")
    for number, command in enumerate(commands):
        yield "" if number else "Next", command


def _shown(path: str) -> str:
    """Return a path from the current folder on, if it is below."""
    if not on_disk(path):
        return path
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _findings(summary: Summary) -> Iterator[tuple[str, str]]:
    for number, finding in enumerate(summary.findings[:_MOST_FINDINGS]):
        yield "" if number else "To look at", f"{finding['text']}: {finding['advice']}"
    if (others := len(summary.findings) - _MOST_FINDINGS) > 0:
        yield "", f"… and {others} more, in the report"
    if not summary.findings:
        checks = len(summary.looked_at)
        yield "To look at", f"nothing found in {checks} checks; the report names them"


def _baseline(summary: Summary) -> str:
    if summary.baseline is None:
        return "none: this is the first model"
    return f"{summary.baseline['accuracy']:.4f}, version {summary.baseline['version']}"


def _shorten(names: list[str], most: int = 10) -> str:
    more = f", … and {len(names) - most:,} more" if len(names) > most else ""
    shown = (name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in names)
    return f"{len(names):,}: {', '.join(itertools.islice(shown, most))}{more}"
