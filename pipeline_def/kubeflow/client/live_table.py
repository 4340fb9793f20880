"""A table of a run's tasks that updates in place on a terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from components.contract.printable import format_duration, make_printable
from pipeline_def.kubeflow.client.run import RunView, TaskView

_STYLES = {
    "RUNNING": "cyan",
    "PENDING": "yellow",
    "SUCCEEDED": "green",
    "CACHED": "green",
    "FAILED": "red",
    "CANCELED": "red",
}
_ENDED = frozenset({"SUCCEEDED", "CACHED", "FAILED", "CANCELED", "SKIPPED"})


class LiveTable:
    """Shows the tasks of a run as last read, with running times."""

    def __init__(self, console: Console) -> None:
        """Draw on `console`."""
        self._console = console
        self._view = RunView("PENDING", ())
        self._started: dict[str, float] = {}

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the table on the terminal while the context is open, and leave it there."""
        with Live(console=self._console, get_renderable=self.render, refresh_per_second=1):
            yield

    def update(self, view: RunView) -> None:
        """Show another view of the run."""
        self._view = view
        now = time.monotonic()
        self._started = {
            task.name: self._started.get(task.name, now)
            for task in view.tasks
            if task.state in ("RUNNING", "PENDING")
        }

    def write(self, line: str) -> None:
        """Print a line above the table."""
        self._console.print(Text(line), soft_wrap=True)

    def render(self) -> Table:
        """Return the table."""
        ended = sum(task.state in _ENDED for task in self._view.tasks)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        count = f", {ended} of {len(self._view.tasks)} ended" if self._view.tasks else ""
        table.add_column(f"Task{count}", no_wrap=True)
        table.add_column("State", no_wrap=True)
        table.add_column("Time", justify="right", no_wrap=True)
        for task in self._view.tasks:
            state = Text(task.state or "waiting", _STYLES.get(task.state, "dim"))
            table.add_row(make_printable(task.name), state, self._time(task))
        return table

    def _time(self, task: TaskView) -> str:
        if task.name in self._started:
            return format_duration(round(time.monotonic() - self._started[task.name]))
        return "" if task.seconds is None else format_duration(task.seconds)
