"""Follows a run on a cluster: one line for each change of a task's state, until the run ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from components.contract.stopping import before_stopping
from pipeline_def.kubeflow.client.run import RunView, TaskView
from pipeline_def.kubeflow.service_errors import Unreachable, one_line

RUN_ENDS = frozenset({"SUCCEEDED", "FAILED", "CANCELED", "SKIPPED"})
# A pod that waits is nothing to tell; one that waits long is.
_UNTOLD = frozenset({"", "PENDING"})
_TASK_ENDS = RUN_ENDS | {"CACHED", ""}
_LOST_POLLS = 10
_LONG_WAIT = 120.0
"""Seconds after which a pending pod is worth a word."""


def ignore(view: RunView) -> None:
    """Do nothing with what was read."""


def follow(
    read: Callable[[], RunView],
    write: Callable[[str], None],
    *,
    url: str,
    interval: float,
    see: Callable[[RunView], None] = ignore,
    hint: str = "",
    changes: bool = True,
) -> str:
    """Write the changes of state until the run ends; return its state, such as "SUCCEEDED".

    The run is read every `interval` seconds, and given to `see`; ten readings in a row may fail.
    Ctrl-C ends the following and not the run: the state returned then is the last one seen.

    Args:
        read: reads the run.
        write: is given each line.
        url: page of the run.
        interval: seconds between two readings.
        see: is given the run as often as it is read.
        hint: what to do about a pod that does not start, a clause; empty: say nothing of them.
        changes: whether to write the changes; not where `see` shows them.

    Raises:
        ServiceError: The API cannot be reached any more, or refuses to answer.
    """
    follower = _Follower(read, write, interval, see, hint, changes)
    left = f"Stopped watching; the run goes on in the cluster: {url}"
    try:
        with before_stopping(lambda: left):
            view = follower.follow()
    except KeyboardInterrupt:
        write(left)
        return follower.view.state
    _write_end(view, write, url)
    return view.state


@dataclass
class _Follower:
    read: Callable[[], RunView]
    write: Callable[[str], None]
    interval: float
    see: Callable[[RunView], None]
    hint: str
    changes: bool
    view: RunView = field(default_factory=lambda: RunView("PENDING", ()))
    shown: dict[str, str] = field(default_factory=dict)
    """Key of a task → the state that was written last."""
    waiting: dict[str, float] = field(default_factory=dict)
    """Name of a task whose pod is pending → since when; the past when that was written."""

    def follow(self) -> RunView:
        while True:
            self.view = self._patient()
            self._write_changes()
            if self.view.state in RUN_ENDS:
                break
            self._write_long_waits()
            time.sleep(self.interval)
        # The cluster reports the end of a run a moment before the ends of its last tasks.
        if any(task.state not in _TASK_ENDS for task in self.view.tasks):
            time.sleep(min(self.interval, 3.0))
            self.view = self._patient()
            self._write_changes()
        return self.view

    def _patient(self) -> RunView:
        """Read the run; ask again while the API gives no proper answer."""
        for attempt in range(_LOST_POLLS + 1):
            try:
                view = self.read()
            except Unreachable as error:
                reason = str(error).rstrip(".")
            else:
                self.see(view)
                return view
            if attempt == 0:
                again = f"asking again every {self.interval:g} s"
                self.write(f"{reason}. The run goes on; {again}.")
            time.sleep(self.interval)
        raise Unreachable(
            f"{reason}; {_LOST_POLLS + 1} polls in a row failed, the run itself goes on."
        )

    def _write_changes(self) -> None:
        for task in self.view.tasks if self.changes else ():
            if task.state in _UNTOLD or self.shown.get(task.key) == task.state:
                continue
            self.shown[task.key] = task.state
            ended = task.state in RUN_ENDS - {"SKIPPED"} and task.seconds is not None
            after = f" after {task.seconds:.0f} s" if ended else ""
            self.write(f"{task.name}: {task.state}{after}")

    def _write_long_waits(self) -> None:
        """Write, once for each, which pods have not started for long; the API never says why."""
        now = time.monotonic()
        pending = [task.name for task in self.view.tasks if task.state == "PENDING"]
        if not self.view.tasks:
            pending = ["the run"]
        self.waiting = {name: self.waiting.get(name, now) for name in pending}
        for name, since in self.waiting.items():
            if self.hint and now - since >= _LONG_WAIT:
                self.waiting[name] = float("inf")
                self.write(f"{name} has been pending for {now - since:.0f} s: {self.hint}")


def failed_task(view: RunView) -> TaskView | None:
    """Return the task to blame for the failure of a run: one that tells why, if there is any."""
    failed = [task for task in view.tasks if task.state == "FAILED"]
    return next((task for task in failed if task.error), failed[0] if failed else None)


def _write_end(view: RunView, write: Callable[[str], None], url: str) -> None:
    if view.state in ("SUCCEEDED", "SKIPPED"):
        write(f"Run {view.state}: {url}")
        return
    task = failed_task(view)
    where = f" in the task {task.name}" if task else ""
    why = one_line((task.error if task else "") or view.error)
    write(f"Run {view.state}{where}: {why or 'the reason is in its log'}; see {url}")
