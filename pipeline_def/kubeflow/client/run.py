"""A run on a cluster: how it is requested, its state at one moment, and how to follow it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from components.contract.errors import ServiceError
from components.host.stopping import before_stopping
from pipeline_def.service_errors import Unreachable, one_line

Parameter = str | int | float | bool
"""Value of a run parameter."""

STOPPED = "CANCELED"
"""State of a stopped run or task."""

RUN_ENDS = frozenset({"SUCCEEDED", "FAILED", STOPPED, "SKIPPED"})
"""Final states of a run; a task may also be CACHED."""

_FAILED_POLLS = 10
_LONG_WAIT = 120.0
"""Seconds after which a pending pod is reported."""
LONGEST_STANDSTILL = 600.0
"""Seconds without a change after which a run that does not run any task is given up."""


def describe(state: str) -> str:
    """Return a state as users see it."""
    return "STOPPED" if state == STOPPED else state


@dataclass(frozen=True)
class RunRequest:
    """A run to start."""

    documents: list[Any]
    """The specification and, if there is one, the platform's document."""
    name: str
    parameters: Mapping[str, Parameter]
    pipeline_root: str | None = None
    service_account: str | None = None
    experiment: str = ""
    """Created if missing."""
    version: str | None = None
    """Name of the version of the pipeline, which must be new; None: time (UTC) and digest."""


@dataclass(frozen=True)
class TaskView:
    """A task of a run at one moment."""

    name: str
    state: str
    """As in Kubeflow's API, or CACHED; empty: not started."""
    seconds: float | None = None
    """Duration of a finished task, if known."""
    error: str = ""


@dataclass(frozen=True)
class RunView:
    """A run at one moment."""

    state: str
    tasks: tuple[TaskView, ...]
    error: str = ""

    def stands_still(self) -> bool:
        """Return whether it is being stopped, or has started and no task is in progress."""
        states = {task.state for task in self.tasks} - {""}
        idle = bool(states) and states.isdisjoint({"PENDING", "RUNNING"})
        return self.state == "CANCELING" or (self.state == "RUNNING" and idle)

    def stopped(self) -> "RunView":
        """Return it as a stopped run, if it looks as if it had failed."""
        ends = {"FAILED": STOPPED}
        tasks = (replace(task, state=ends.get(task.state, task.state)) for task in self.tasks)
        return replace(self, state=ends.get(self.state, self.state), tasks=tuple(tasks))

    def failed_task(self) -> TaskView | None:
        """Return the first failed task, preferably one that gives its reason."""
        failed = [task for task in self.tasks if task.state == "FAILED"]
        return next((task for task in failed if task.error), failed[0] if failed else None)


@dataclass(frozen=True)
class StartedRun:
    """A started run."""

    run_id: str
    url: str
    """Its page."""
    read: Callable[[], RunView]
    """Reads its state."""
    hint: str = ""
    """What to do about a pod that stays pending; empty: do not report them."""


@dataclass
class RunFollower:
    """Polls a run and reports on it."""

    run: StartedRun
    write: Callable[[str], None]
    """Receives each line."""
    interval: float = 10.0
    """Seconds between two polls."""
    _view: RunView = field(default_factory=lambda: RunView("PENDING", ()))
    _shown: dict[str, str] = field(default_factory=dict)
    """Task → the state written last."""
    _standing: tuple[RunView | None, float] = (None, 0.0)
    """The run when it changed last, and when that was."""
    _stopping: bool = False
    """Whether it was seen CANCELING, which 2.17 may forget."""
    _waiting: dict[str, float] = field(default_factory=dict)
    """Pending task → since when; infinity once that was reported."""

    def follow(self) -> str:
        """Poll the run until it ends and return its last known state, such as "SUCCEEDED".

        Ctrl-C stops following and leaves the run alone.

        Raises:
            ServiceError: The API refuses, eleven polls in a row failed, or the run stands still.
        """
        left = f"Stopped watching; the run continues in the cluster: {self.run.url}"
        try:
            with before_stopping(lambda: left):
                self._poll_until_end()
        except KeyboardInterrupt:
            self.write(left)
        else:
            self._write_end()
        return self._view.state

    def _poll_until_end(self) -> None:
        self._poll()
        while self._view.state not in RUN_ENDS:
            now = time.monotonic()
            self._write_long_waits(now)
            self._check_standstill(now)
            time.sleep(self.interval)
            self._poll()
        # The cluster reports the end of a run shortly before the ends of its last tasks.
        if any(task.state not in RUN_ENDS | {"CACHED", ""} for task in self._view.tasks):
            time.sleep(min(self.interval, 3.0))
            self._poll()

    def _poll(self) -> None:
        """Read the run, with retries while the API is unreachable."""
        for failures in range(_FAILED_POLLS + 1):
            try:
                view = self.run.read()
                self._stopping |= view.state == "CANCELING"
                forgotten = self._stopping and view.state == "FAILED"
                self._view = view.stopped() if forgotten else view
                break
            except Unreachable as error:
                if failures == _FAILED_POLLS:
                    raise
                if failures == 0:
                    self.write(f"{error} The run continues; retrying every {self.interval:g} s.")
            time.sleep(self.interval)
        self._write_changes()

    def _check_standstill(self, now: float) -> None:
        """Raise `ServiceError` if the run will hardly end: its workflow may have been deleted."""
        if self._view != self._standing[0]:
            self._standing = (self._view, now)
        seconds = now - self._standing[1]
        if self._view.stands_still() and seconds >= LONGEST_STANDSTILL:
            raise ServiceError(
                f"The run has been {self._view.state} for {seconds:.0f} s without a task in "
                "progress or a change: its workflow may have been deleted, and then it never ends; "
                f"see {self.run.url}"
            )

    def _write_changes(self) -> None:
        for task in self._view.tasks:
            # A long wait for a pod is reported by itself.
            if task.state in ("", "PENDING") or self._shown.get(task.name) == task.state:
                continue
            self._shown[task.name] = task.state
            after = "" if task.seconds is None else f" after {task.seconds:.0f} s"
            self.write(f"{task.name}: {describe(task.state)}{after}")

    def _write_long_waits(self, now: float) -> None:
        """Report once that a pod has not started for long. The API never says why."""
        pending = [task.name for task in self._view.tasks if task.state == "PENDING"]
        if all(task.state == "" for task in self._view.tasks):
            pending = ["the run"]
        self._waiting = {name: self._waiting.get(name, now) for name in pending}
        for name, since in self._waiting.items():
            if self.run.hint and now - since >= _LONG_WAIT:
                self._waiting[name] = float("inf")
                self.write(f"{name} has been pending for {now - since:.0f} s: {self.run.hint}")

    def _write_end(self) -> None:
        view, url = self._view, self.run.url
        task = view.failed_task()
        if view.state in ("SUCCEEDED", "SKIPPED") or (view.state == STOPPED and not task):
            self.write(f"Run {describe(view.state)}: {url}")
            return
        where = f" in the task {task.name}" if task else ""
        why = one_line((task.error if task else "") or view.error) or "the reason is in its log"
        self.write(f"Run {describe(view.state)}{where}: {why}; see {url}")
