"""Terminal output: rows of a title and a text, progress bars, and the display of a run.

Control characters of file names are escaped.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from components.contract.printable import make_printable
from components.host.progress import LOGGER

if TYPE_CHECKING:
    from pipeline_def.runs.record import Step

PLAIN_INTERVAL = 10.0
"""Seconds: without a terminal, a line of progress is printed at most this often."""

INDENT = 13
"""Width of the titles: the longest title and a space."""

# Words do not fit in less.
_NARROWEST = 20
# Fits the longest note of an epoch on a line of 80 characters.
_BAR_WIDTH = 12
# Most lines of a phase that stay on the screen.
_MOST_LINES = 20


def print_row(title: str, text: str, *, indent: int = INDENT, style: str = "bold") -> None:
    """Print a row, wrapped between words on a terminal, else on one line."""
    console = Console(highlight=False)
    for number, line in enumerate(wrap(console, text, indent=indent)):
        _print(console, "" if number else title, line, indent, style)


def print_whole(title: str, text: str, *, indent: int = INDENT, style: str = "bold") -> None:
    """Print a row on one line, however long, so that commands and paths can be copied."""
    _print(Console(highlight=False), title, make_printable(text), indent, style)


def list_rows(
    title: str, texts: Sequence[str], most: int | None = None, more: str = "more"
) -> Iterator[tuple[str, str]]:
    """Yield `most` texts as rows, the first with the title; then how many `more` there are."""
    for number, text in enumerate(texts[:most]):
        yield "" if number else title, text
    if most is not None and len(texts) > most:
        yield "", f"… and {len(texts) - most:,} {more}"


def wrap(console: Console, text: str, *, indent: int = 0) -> list[str]:
    """Wrap a text to the width of a terminal; return it as one line for other outputs."""
    text = make_printable(text)
    if not console.is_terminal:
        return [text]
    width = max(console.width - indent - 1, _NARROWEST)
    return [line.plain.rstrip() for line in Text(text).wrap(console, width)] or [""]


def _print(console: Console, title: str, line: str, indent: int, style: str) -> None:
    console.print(Text.assemble((f"{title:<{indent}}", style), line), soft_wrap=True)


@contextlib.contextmanager
def redirect_output(log_file: str) -> Iterator[TextIO]:
    """Redirect the output of this process and its C++ libraries to `log_file`.

    TensorFlow, Beam and Google's libraries print pages of warnings, many of them below Python's
    streams, so the file descriptors themselves are redirected.

    Yields:
        A stream that still writes to the standard output.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    with (
        open(log_file, "ab") as log,
        os.fdopen(os.dup(1), "w", encoding=encoding, errors=errors) as terminal,
    ):
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
    """Flush a stream, and drop what a full disk does not take, so that it is not printed later."""
    try:
        stream.flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), descriptor)
        stream.flush()


class RunDisplay(logging.Handler):
    """Displays the steps of a run, and handles the progress records of components."""

    def __init__(self, stream: TextIO) -> None:
        """Print to `stream`."""
        super().__init__()
        self._console = Console(file=stream, highlight=False)
        self._total = 0
        self._ended = 0
        self.step = ""
        """Current or last step; "" before the first."""
        self._printed = 0.0
        self._bars = make_bars(self._console)

    @contextlib.contextmanager
    def running(self, *, total: int) -> Iterator[None]:
        """Display the progress of a run of `total` steps within the context."""
        self._total = total
        LOGGER.setLevel(logging.INFO)
        LOGGER.addHandler(self)
        try:
            with self._bars if self._console.is_terminal else contextlib.nullcontext():
                yield
        finally:
            LOGGER.removeHandler(self)

    def step_started(self, name: str) -> None:
        """Display the start of a step."""
        self.step, self._printed = name, time.monotonic()
        self._bars.add_task(name, total=None, note="")
        if not self._console.is_terminal:
            self._print(f"{name} …")

    def step_ended(self, name: str, step: Step) -> None:
        """Display the end of a step."""
        for task in self._bars.task_ids:
            self._bars.remove_task(task)
        cached = step.state == "cached"
        took = "unchanged, taken from the cache" if cached else f"{step.seconds:.1f} s"
        self._print(f"{name:<17} {took}")
        self._ended += 1

    def say(self, text: str) -> None:
        """Print a sentence before the first step."""
        self._console.print(Text(f"{'':8} {make_printable(text)}"), soft_wrap=True)

    def emit(self, record: logging.LogRecord) -> None:
        """Display a progress record of the current step."""
        note = make_printable(record.getMessage())
        if progress := getattr(record, "progress", None):
            self._update(note, *progress, lasting=getattr(record, "lasting", False))

    def _update(self, note: str, done: float, total: float, *, lasting: bool) -> None:
        for task in self._bars.tasks:
            update_bar(self._bars, task, done=done, total=total, note=note)
        due = time.monotonic() - self._printed > PLAIN_INTERVAL
        kept = lasting and (done % math.ceil(total / _MOST_LINES) == 0 or done == total)
        if kept or (due and not lasting and not self._console.is_terminal):
            self._printed = time.monotonic()
            self._print(f"{self.step:<17} {note}")

    def _print(self, text: str) -> None:
        """Print a line of the current step, which a narrow terminal truncates."""
        number = f"[{self._ended + 1}/{self._total}]"
        line = Text(f"{number:>8} {text}")
        if self._console.is_terminal:
            line.truncate(self._console.width, overflow="ellipsis")
        self._console.print(line, soft_wrap=True)


def make_bars(console: Console) -> Progress:
    """Return progress bars, a line each, whose tasks have a field `note`."""
    bar, percent, left = (Column(no_wrap=True) for _ in range(3))
    return Progress(
        SpinnerColumn("line" if console.options.ascii_only else "dots"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=_BAR_WIDTH, table_column=bar),
        TaskProgressColumn("[magenta]{task.percentage:3.0f}%", table_column=percent),
        _NoteColumn(),
        TimeRemainingColumn(compact=True, table_column=left),
        console=console,
        transient=True,
        # From the first report on: one-time work precedes it, such as tracing a graph.
        speed_estimate_period=math.inf,
    )


def update_bar(bars: Progress, task: Task, *, done: float, total: float, note: str) -> None:
    """Show that `done` of `total` units are finished; fewer than before begin another phase."""
    if done < task.completed:
        bars.reset(task.id, total=total)
    bars.update(task.id, completed=done, total=total, note=note)


class _NoteColumn(ProgressColumn):
    """The only column that is truncated on a narrow terminal."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["note"], no_wrap=True, overflow="ellipsis")
