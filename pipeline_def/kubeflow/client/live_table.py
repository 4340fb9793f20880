"""A table of a run's tasks that changes in place, for a person at a terminal."""

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
    """Shows the tasks of a run as it was read last; times of running tasks go on."""

    def __init__(self, console: Console) -> None:
        """Draw on `console`."""
        self._console = console
        self._view = RunView("PENDING", ())
        self._begun: dict[str, float] = {}

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the table on the terminal while the context is open, and leave it there."""
        with Live(
            console=self._console, get_renderable=self.render, refresh_per_second=1, transient=False
        ):
            yield

    def see(self, view: RunView) -> None:
        """Take another look at the run."""
        self._view = view
        now = time.monotonic()
        self._begun = {
            task.key: self._begun.get(task.key, now)
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
        if task.key in self._begun:
            return format_duration(round(time.monotonic() - self._begun[task.key]))
        known = task.seconds is not None and task.state in _ENDED - {"CACHED", "SKIPPED"}
        return format_duration(task.seconds or 0.0) if known else ""
