"""Read the state and the pod of each task from the details of a run.

The API lists every node of the Argo workflow by the last part of its name: a task, its driver
`X-driver`, its `executor` and, since 2.17, each attempt at one of them, such as `X(0)`.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pipeline_def.kubeflow.client.run import RunView, TaskView

_DRIVER = "-driver"
Details = Mapping[str, Any]


def read_state(run: Details) -> str:
    """Return the state of a run; 2.17 reports a stopped one as failed."""
    state = str(run.get("state") or "PENDING")
    return "CANCELED" if state == "FAILED" and _stopped_at(run) else state


def _stopped_at(run: Details) -> float:
    """Return when a run was stopped, in seconds since 1970; 0: it was not."""
    history = run.get("state_history") or []
    times = (_seconds(one.get("update_time")) for one in history if _state(one) == "CANCELING")
    return next(times, 0.0)


def read_view(run: Details, tasks: Iterable[str]) -> RunView:
    """Return the state of a run and of its tasks.

    Args:
        run: Response of the API.
        tasks: Names of the steps. They are returned in the order in which they started.
    """
    details = list(_details(run))
    named = {detail["display_name"]: detail for detail in details}
    names = list(tasks)
    # Drivers of stages and of the run may fail as well.
    drivers = (name.removesuffix(_DRIVER) for name in named if name.endswith(_DRIVER))
    failed = {name for name in drivers if _state(named[f"{name}{_DRIVER}"]) == "FAILED"}
    names += sorted(failed - set(names))
    names.sort(key=lambda name: _times(named.get(name, {}))[0] or float("inf"))
    pods = [detail for detail in details if detail["display_name"].startswith("executor")]
    waiting = {_times(pod)[0] for pod in pods if _state(pod) == "PENDING"}
    views = (_task_view(name, named, waiting, stopped_at=_stopped_at(run)) for name in names)
    error = (run.get("error") or {}).get("message", "")
    return RunView(read_state(run), tuple(views), error)


def _task_view(
    name: str, named: Mapping[str, Details], waiting: set[float], *, stopped_at: float
) -> TaskView:
    detail, driver = named.get(name, {}), named.get(f"{name}{_DRIVER}", {})
    state = _state(detail)
    if not state or _state(driver) == "FAILED":
        detail, attempt = driver, named.get(f"{name}{_DRIVER}(0)", {})
        state = _state(driver) if _state(driver) == "FAILED" else ""
        state = "PENDING" if "PENDING" in (_state(driver), _state(attempt)) else state
    start, end = _times(detail)
    seconds = end - start if state in ("SUCCEEDED", "FAILED") and 0 < start <= end else None
    # The API has no state for a cache hit, but no pod ever finishes within a second.
    if state == "SUCCEEDED" and seconds is not None and seconds <= 1:
        state, seconds = "CACHED", None
    if state == "FAILED" and 0 < stopped_at <= end:
        state = "CANCELED"
    # A task runs while its pod is pending; its first attempt starts with the task.
    if state == "RUNNING" and any(0 <= pod - start <= 1 for pod in waiting):
        state = "PENDING"
    return TaskView(name, state, seconds, (detail.get("error") or {}).get("message", ""))


def find_pod(run: Details, task: str) -> str | None:
    """Return the Argo node of the last pod of a task, or else of its driver, if either has started.

    A node refers to others by ID, a hash of a whole name such as
    `images-g9nxq(0).root(0).train(0).Trainer(0).executor(0)`; releases before 2.17 list no
    attempts. Source: `NodeID` and `initializeNode` of Argo Workflows.
    """
    details = list(_details(run))
    ids = {child.get("pod_name", "") for one in details for child in one.get("child_tasks") or []}
    workflows = {node.rpartition("-")[0] for node in ids} - {""}
    stages = ["", *sorted({f".{detail['display_name']}" for detail in details})]
    for workflow, title, stage, attempt in itertools.product(
        sorted(workflows), (f"{task}{{}}.executor", f"{task}{_DRIVER}"), stages, ("(0)", "")
    ):
        within = f"{stage}{attempt}" if stage else ""
        name = f"{workflow}{attempt}.root{attempt}{within}.{title.format(attempt)}"
        numbered = (node_id(workflow, f"{name}({number})") for number in itertools.count())
        pods = [node_id(workflow, name), *itertools.takewhile(ids.__contains__, numbered)]
        if pods[-1] in ids:
            return pods[-1]
    return None


def node_id(workflow: str, name: str) -> str:
    """Return the ID of a node: the FNV-1a hash of its name, 32 bits."""
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return f"{workflow}-{value}"


def _details(run: Details) -> Iterator[dict[str, Any]]:
    """Yield the nodes; what the launcher adds to the list has no name."""
    for detail in (run.get("run_details") or {}).get("task_details") or []:
        if detail.get("display_name"):
            yield detail


def _state(detail: Details) -> str:
    state = str(detail.get("state") or "")
    return "" if state == "RUNTIME_STATE_UNSPECIFIED" else state


def _times(detail: Details) -> tuple[float, float]:
    return _seconds(detail.get("start_time")), _seconds(detail.get("end_time"))


def _seconds(stamp: Any) -> float:
    """Return seconds since 1970, and 0 for the year 1, which the backend writes for no time."""
    try:
        return max(0.0, datetime.datetime.fromisoformat(str(stamp)).timestamp())
    except (ValueError, OverflowError):
        return 0.0
