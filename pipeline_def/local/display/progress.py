"""Progress of a step: estimated time left, lines worth keeping, and a progress bar."""

import math
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
)
from rich.table import Column
from rich.text import Text

# Fits the longest note of an epoch on a line of 80 characters.
_BAR_WIDTH = 12
# Most lines of a step that stay on the screen.
_MOST_LINES = 20


class StepProgress:
    """Progress reports of one step."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Measure time with `clock`, seconds."""
        self._clock = clock
        self._first = self._last = (0.0, 0.0)
        self._total = 0.0
        self._units = 0.0
        self._skipped = ""

    def report(self, done: float, total: float) -> None:
        """Record that `done` of `total` units are finished.

        The timing restarts when `done` decreases, as in a second training phase, or `total`
        changes.
        """
        now = (self._clock(), done)
        if total != self._total or done < self._last[1]:
            self._first, self._total = now, total
        self._last = now

    def seconds_left(self) -> float | None:
        """Estimate the time left; return None before two reports and when nothing is left.

        The rate is measured from the first report on, as one-time work precedes it, such as tracing
        a graph or restoring a checkpoint.
        """
        (began, at_first), (reported, done) = self._first, self._last
        if not at_first < done < self._total or reported <= began:
            return None
        rest = (self._total - done) * (reported - began) / (done - at_first)
        return max(0.0, rest - (self._clock() - reported))

    def time_left(self) -> str:
        """Return the time left as text; "" if unknown."""
        seconds = self.seconds_left()
        return "" if seconds is None else f"{_format_clock(seconds)} left"

    def keep(self, line: str, *, done: float, total: float) -> list[str]:
        """Return the lines to print permanently after `done` units: about 20, with the last one."""
        restarted, self._units = done <= self._units, done
        lines = self.take_skipped() if restarted else []
        every = math.ceil(total / _MOST_LINES)
        if done % every == 0 or done == total:
            self._skipped = ""
            return [*lines, line]
        self._skipped = line
        return lines

    def take_skipped(self) -> list[str]:
        """Return the last line if it was not printed, for a step that stopped early."""
        lines, self._skipped = [self._skipped] if self._skipped else [], ""
        return lines


def make_bar(console: Console, time_left: Callable[[], str]) -> Progress:
    """Return a one-line progress bar, whose tasks have a field `note`."""
    columns = (
        SpinnerColumn("line" if console.options.ascii_only else "dots"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=_BAR_WIDTH, table_column=_uncut()),
        TaskProgressColumn("[magenta]{task.percentage:3.0f}%", table_column=_uncut()),
        _NoteColumn(),
        _TimeColumn(time_left),
    )
    return Progress(*columns, console=console, transient=True)


def _format_clock(seconds: float) -> str:
    """Format a duration as a clock does: 0:41, 12:05, 1:02:07."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _uncut() -> Column:
    """Return a column that is never truncated."""
    return Column(no_wrap=True)


class _NoteColumn(ProgressColumn):
    """The only column that is truncated on a narrow terminal."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["note"], no_wrap=True, overflow="ellipsis")


class _TimeColumn(ProgressColumn):
    """The time left, or the time elapsed until it is known."""

    max_refresh = 0.5

    def __init__(self, time_left: Callable[[], str]) -> None:
        super().__init__(_uncut())
        self._time_left = time_left

    def render(self, task: Task) -> Text:
        return Text(self._time_left() or _format_clock(task.elapsed or 0), style="cyan")
