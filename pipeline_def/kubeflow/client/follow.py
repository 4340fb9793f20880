"""The state of a run and of its tasks as the API reports it, and how to follow a run to its end.

The API lists every node of the Argo workflow in `run_details`, by the last part of its name: a
task, its driver `X-driver`, its `executor` and, since 2.17, each attempt at one of them, such as
`X(0)`.
"""

import datetime
import functools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from components.host.stopping import before_stopping
from pipeline_def.service_errors import Unreachable, one_line

STOPPED = "CANCELED"
"""State of a stopped run or task."""

RUN_ENDS = frozenset({"SUCCEEDED", "FAILED", STOPPED, "SKIPPED"})
"""Final states of a run; a task may also be CACHED."""

# Seconds between two polls, and before the last one.
_INTERVAL, _LAST_PAUSE = 10.0, 3.0
_FAILED_POLLS = 10
_DRIVER = "-driver"
_DRIVER_FAILED = "its driver failed or was stopped before the step began; see the driver's log"
Details = Mapping[str, Any]


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


def describe(state: str) -> str:
    """Return a state as users see it."""
    return "STOPPED" if state == STOPPED else state


_print = functools.partial(print, flush=True)


def follow(read: Callable[[], RunView], url: str) -> str:
    """Poll a run until it ends and return its last known state, such as "SUCCEEDED".

    Ctrl-C stops following and leaves the run alone.

    Args:
        read: reads its state.
        url: its page.

    Raises:
        ServiceError: The API refuses, or eleven polls in a row failed.
    """
    left = f"Stopped watching; the run continues in the cluster: {url}"
    view, shown = RunView("PENDING", ()), dict[str, str]()
    try:
        with before_stopping(lambda: left):
            while (view := _poll(read, shown)).state not in RUN_ENDS:
                time.sleep(_INTERVAL)
            # The cluster reports the end of a run shortly before the ends of its last tasks.
            if any(task.state not in RUN_ENDS | {"CACHED", ""} for task in view.tasks):
                time.sleep(_LAST_PAUSE)
                view = _poll(read, shown)
    except KeyboardInterrupt:
        _print(left)
    else:
        _print(f"Run {_describe_end(view, url)}")
    return view.state


def _poll(read: Callable[[], RunView], shown: dict[str, str]) -> RunView:
    """Read the run, with retries while the API is unreachable, and write what has changed.

    `shown` is task → the state written last.
    """
    for failures in range(_FAILED_POLLS + 1):
        try:
            view = read()
            break
        except Unreachable as error:
            if failures == _FAILED_POLLS:
                raise
            if failures == 0:
                _print(f"{error} The run continues; retrying every {_INTERVAL:g} s.")
        time.sleep(_INTERVAL)
    for task in view.tasks:
        if task.state and shown.get(task.name) != task.state:
            shown[task.name] = task.state
            after = "" if task.seconds is None else f" after {task.seconds:.0f} s"
            _print(f"{task.name}: {describe(task.state)}{after}")
    return view


def _describe_end(view: RunView, url: str) -> str:
    state, task = describe(view.state), view.failed_task()
    if view.state in ("SUCCEEDED", "SKIPPED") or (view.state == STOPPED and not task):
        return f"{state}: {url}"
    where = f" in the task {task.name}" if task else ""
    why = one_line((task.error if task else "") or view.error) or "the reason is in its log"
    return f"{state}{where}: {why}; see {url}"


def read_state(run: Details) -> str:
    """Return the state of a run; 2.17 reports a stopped one as failed.

    It forgets a stop within the first seconds: that run has failed.
    """
    state = str(run.get("state") or "PENDING")
    return STOPPED if state == "FAILED" and _stopped_at(run) else state


def read_view(run: Details, tasks: Iterable[str]) -> RunView:
    """Return the state of a run and of these tasks, in the order in which they started."""
    listed = (run.get("run_details") or {}).get("task_details") or []
    # What the launcher adds has no name.
    details = [detail for detail in listed if detail.get("display_name")]
    named = {detail["display_name"]: detail for detail in details}
    names = list(tasks)
    # The driver of the run may fail as well.
    drivers = (name.removesuffix(_DRIVER) for name in named if name.endswith(_DRIVER))
    failed = {name for name in drivers if _state(named[f"{name}{_DRIVER}"]) == "FAILED"}
    names += sorted(failed - set(names))
    names.sort(key=lambda name: _times(named.get(name, {}))[0] or float("inf"))
    pods = [detail for detail in details if detail["display_name"].startswith("executor")]
    waiting = {_times(pod)[0] for pod in pods if _state(pod) == "PENDING"}
    views = (_task_view(name, named, waiting, stopped_at=_stopped_at(run)) for name in names)
    return RunView(read_state(run), tuple(views), _error(run))


def _task_view(
    name: str, named: Mapping[str, Details], waiting: set[float], *, stopped_at: float
) -> TaskView:
    detail, driver = named.get(name, {}), named.get(f"{name}{_DRIVER}", {})
    state, error = _state(detail), _error(detail)
    if _state(driver) == "FAILED":
        detail, state, error = driver, "FAILED", _error(driver) or _DRIVER_FAILED
    elif not state:
        attempt = named.get(f"{name}{_DRIVER}(0)", {})
        state = "PENDING" if "PENDING" in (_state(driver), _state(attempt)) else ""
    start, end = _times(detail)
    seconds = end - start if state in ("SUCCEEDED", "FAILED") and 0 < start <= end else None
    # The API has no state for a cache hit, but no pod ever finishes within a second.
    if state == "SUCCEEDED" and seconds is not None and seconds <= 1:
        state, seconds = "CACHED", None
    if state == "FAILED" and 0 < stopped_at <= end:
        state = STOPPED
    # A task runs while its pod is pending; its first attempt starts with the task.
    if state == "RUNNING" and any(0 <= pod - start <= 1 for pod in waiting):
        state = "PENDING"
    return TaskView(name, state, seconds, error)


def _stopped_at(run: Details) -> float:
    """Return when a run was stopped, in seconds since 1970; 0: it was not."""
    history = run.get("state_history") or []
    times = (_seconds(row.get("update_time")) for row in history if _state(row) == "CANCELING")
    return next(times, 0.0)


def _state(detail: Details) -> str:
    state = str(detail.get("state") or "")
    return "" if state == "RUNTIME_STATE_UNSPECIFIED" else state


def _error(detail: Details) -> str:
    return str((detail.get("error") or {}).get("message", ""))


def _times(detail: Details) -> tuple[float, float]:
    return _seconds(detail.get("start_time")), _seconds(detail.get("end_time"))


def _seconds(stamp: Any) -> float:
    """Return seconds since 1970, and 0 for the year 1, which the backend writes for no time."""
    try:
        return max(0.0, datetime.datetime.fromisoformat(str(stamp)).timestamp())
    except (ValueError, OverflowError):
        return 0.0
