"""A run on a cluster: how it is requested, its state at one moment, and how to follow it."""

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
    """Why it failed, unless its failed task says so."""

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


_print = functools.partial(print, flush=True)


@dataclass
class RunFollower:
    """Polls a run and reports on it."""

    run: StartedRun
    interval: float = 10.0
    """Seconds between two polls."""
    _view: RunView = field(default_factory=lambda: RunView("PENDING", ()))
    _shown: dict[str, str] = field(default_factory=dict)
    """Task → the state written last."""
    _waiting: dict[str, float] = field(default_factory=dict)
    """Pending task → since when; infinity once that was reported."""

    def follow(self) -> str:
        """Poll the run until it ends and return its last known state, such as "SUCCEEDED".

        Ctrl-C stops following and leaves the run alone.

        Raises:
            ServiceError: The API refuses, or eleven polls in a row failed.
        """
        left = f"Stopped watching; the run continues in the cluster: {self.run.url}"
        try:
            with before_stopping(lambda: left):
                self._poll_until_end()
        except KeyboardInterrupt:
            _print(left)
        else:
            self._write_end()
        return self._view.state

    def _poll_until_end(self) -> None:
        self._poll()
        while self._view.state not in RUN_ENDS:
            self._write_long_waits(time.monotonic())
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
                self._view = self.run.read()
                break
            except Unreachable as error:
                if failures == _FAILED_POLLS:
                    raise
                if failures == 0:
                    _print(f"{error} The run continues; retrying every {self.interval:g} s.")
            time.sleep(self.interval)
        self._write_changes()

    def _write_changes(self) -> None:
        for task in self._view.tasks:
            # A long wait for a pod is reported by itself.
            if task.state in ("", "PENDING") or self._shown.get(task.name) == task.state:
                continue
            self._shown[task.name] = task.state
            after = "" if task.seconds is None else f" after {task.seconds:.0f} s"
            _print(f"{task.name}: {describe(task.state)}{after}")

    def _write_long_waits(self, now: float) -> None:
        """Report once that a pod has not started for long. The API never says why."""
        pending = [task.name for task in self._view.tasks if task.state == "PENDING"]
        if all(task.state == "" for task in self._view.tasks):
            pending = ["the run"]
        self._waiting = {name: self._waiting.get(name, now) for name in pending}
        for name, since in self._waiting.items():
            if self.run.hint and now - since >= _LONG_WAIT:
                self._waiting[name] = float("inf")
                _print(f"{name} has been pending for {now - since:.0f} s: {self.run.hint}")

    def _write_end(self) -> None:
        view, url = self._view, self.run.url
        task = view.failed_task()
        if view.state in ("SUCCEEDED", "SKIPPED") or (view.state == STOPPED and not task):
            _print(f"Run {describe(view.state)}: {url}")
            return
        where = f" in the task {task.name}" if task else ""
        why = one_line((task.error if task else "") or view.error) or "the reason is in its log"
        _print(f"Run {describe(view.state)}{where}: {why}; see {url}")
