"""The bar of the step that runs: its name, the share that is done, a note, the time left."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

# Leaves the longest note of an epoch in one line of 80 characters.
_BAR_WIDTH = 12


def make_bar(console: Console, time_left: Callable[[], str]) -> Progress:
    """Return a bar for `console`, whose tasks have a field `note`; in one line, however narrow.

    Args:
        console: a terminal.
        time_left: says how long the step still takes; "" while nobody can tell.
    """
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=_BAR_WIDTH, table_column=_whole()),
        _ShareColumn(_whole()),
        _NoteColumn(),
        _TimeColumn(time_left),
    )
    return Progress(*columns, console=console, transient=True)


def clock(seconds: float) -> str:
    """Say a time as a clock would: 0:41, 12:05, 1:02:07."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _whole() -> Column:
    """Return a column that is never cut."""
    return Column(no_wrap=True)


class _ShareColumn(ProgressColumn):
    """How much of a step is done, if it says so."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.percentage:3.0f} %" if task.total else "", style="magenta")


class _NoteColumn(ProgressColumn):
    """What a step says of its progress; the only column that is cut in a narrow terminal."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["note"], no_wrap=True, overflow="ellipsis")


class _TimeColumn(ProgressColumn):
    """The time that a step still takes; the time it has taken, while nobody can tell."""

    max_refresh = 0.5

    def __init__(self, time_left: Callable[[], str]) -> None:
        super().__init__(_whole())
        self._time_left = time_left

    def render(self, task: Task) -> Text:
        return Text(self._time_left() or clock(task.elapsed or 0), style="cyan")
