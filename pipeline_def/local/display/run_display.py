"""The display of a run: its steps as they start, progress and end."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.text import Text

from components.contract.printable import make_printable
from components.host.progress import LOGGER
from pipeline_def.local.display.progress import StepProgress, make_bar

if TYPE_CHECKING:
    from pipeline_def.runs.record import Step

# Without a terminal, a line of progress is printed at most this often, seconds.
_PLAIN_INTERVAL = 10.0


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
        self._progress = StepProgress()
        self._bars = make_bar(self._console, lambda: self._progress.time_left())

    @contextlib.contextmanager
    def running(self, *, total: int) -> Iterator[None]:
        """Display the progress of a run of `total` steps within the context."""
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
        """Display the start of a step."""
        self.step, self._printed = name, time.monotonic()
        self._progress = StepProgress()
        if self._console.is_terminal:
            self._bars.add_task(name, total=None, note="")
        else:
            self._print(f"{name} …")

    def step_ended(self, name: str, step: Step) -> None:
        """Display the end of a step."""
        for task in self._bars.task_ids:
            self._bars.remove_task(task)
        for line in self._progress.take_skipped():
            self._print(f"{name:<17} {line}")
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
        kept = self._progress.keep(note, done=done, total=total) if lasting else []
        self._progress.report(done, total)
        for task in self._bars.task_ids:
            self._bars.update(task, completed=done, total=total, note=note)
        due = time.monotonic() - self._printed > _PLAIN_INTERVAL
        if not kept and due and not lasting and not self._console.is_terminal:
            kept = [note]
        for line in kept:
            self._printed = time.monotonic()
            self._print(f"{self.step:<17} {line}", self._progress.time_left())

    def _print(self, text: str, end: str = "") -> None:
        """Print a line of the current step; on a narrow terminal truncate `text`, not `end`."""
        number = f"[{self._ended + 1}/{self._total}]"
        line, end = Text(f"{number:>8} {text}"), f" {end}" if end else ""
        if self._console.is_terminal:
            line.truncate(self._console.width - len(end), overflow="ellipsis")
        self._console.print(line.append(end), soft_wrap=True)
