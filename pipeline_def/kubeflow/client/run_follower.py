"""Follows a run on a cluster: one line for each change of a task's state, until the run ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pipeline_def.kubeflow.client.api_errors import Unreachable, one_line

Parameter = str | int | float | bool
"""The value of a parameter of a run."""

RUN_ENDS = frozenset({"SUCCEEDED", "FAILED", "CANCELED", "SKIPPED"})
_TASK_ENDS = RUN_ENDS | {"CACHED"}
_LOST_POLLS = 10


@dataclass(frozen=True)
class StartedRun:
    """A run that was started: its identifier, its page, and the pipeline version it runs."""

    run_id: str
    url: str
    version: str | None = None


@dataclass(frozen=True)
class TaskView:
    """A task of a run at one moment; `seconds` is how long it has run, where that is known."""

    key: str
    name: str
    state: str
    seconds: float | None = None
    error: str = ""


@dataclass(frozen=True)
class RunView:
    """A run at one moment."""

    state: str
    tasks: tuple[TaskView, ...]
    error: str = ""


def follow(
    read: Callable[[], RunView],
    write: Callable[[str], None],
    *,
    url: str,
    interval: float,
    lost_polls: int = _LOST_POLLS,
) -> str:
    """Write the changes of state until the run ends; return its state, such as "SUCCEEDED".

    Every `interval` seconds it is read anew; `lost_polls` readings in a row may fail. Ctrl-C ends
    the following, not the run: the state returned then is the last one seen.

    Raises:
        UserError: The API cannot be reached any more, or refuses to answer.
    """
    shown: dict[str, str] = {}
    view = RunView("PENDING", ())
    try:
        while True:
            view = _patient(read, write, interval, lost_polls)
            _write_changes(view, shown, write)
            if view.state in RUN_ENDS:
                break
            time.sleep(interval)
        view = _settled(view, read, shown, write, interval)
    except KeyboardInterrupt:
        write(f"Stopped watching; the run goes on in the cluster: {url}")
        return view.state
    _write_end(view, write, url)
    return view.state


def _patient(
    read: Callable[[], RunView], write: Callable[[str], None], interval: float, limit: int
) -> RunView:
    for attempt in range(limit + 1):
        try:
            return read()
        except Unreachable as error:
            if attempt == limit:
                text = str(error).rstrip(".")
                raise Unreachable(
                    f"{text}; {limit + 1} polls in a row failed, the run itself goes on."
                ) from None
            if attempt == 0:
                write(f"{error} The run goes on; asking again every {interval:g} s.")
            time.sleep(interval)
    raise AssertionError("unreachable")


def _settled(
    view: RunView,
    read: Callable[[], RunView],
    shown: dict[str, str],
    write: Callable[[str], None],
    interval: float,
) -> RunView:
    # The cluster reports the end of a run a moment before the ends of its last tasks.
    if all(task.state in _TASK_ENDS or not task.state for task in view.tasks):
        return view
    time.sleep(min(interval, 3.0))
    try:
        view = read()
    except Unreachable:
        return view
    _write_changes(view, shown, write)
    return view


def _write_changes(view: RunView, shown: dict[str, str], write: Callable[[str], None]) -> None:
    for task in view.tasks:
        if not task.state or shown.get(task.key) == task.state:
            continue
        shown[task.key] = task.state
        ended = task.state in {"SUCCEEDED", "FAILED", "CANCELED"} and task.seconds is not None
        write(f"{task.name}: {task.state}" + (f" after {task.seconds:.0f} s" if ended else ""))


def _write_end(view: RunView, write: Callable[[str], None], url: str) -> None:
    if view.state in ("SUCCEEDED", "SKIPPED"):
        write(f"Run {view.state}: {url}")
        return
    failed = [task for task in view.tasks if task.state == "FAILED"]
    task = next((task for task in failed if task.error), failed[0] if failed else None)
    where = f" in the task {task.name}" if task else ""
    why = one_line((task.error if task else "") or view.error)
    write(f"Run {view.state}{where}: {why or 'the reason is in its log'}; see {url}")
