"""Read the state and the pod of each task from the details of a run.

The API lists every node of the Argo workflow by the last part of its name: a task, its driver
`X-driver`, its `executor` and, since 2.17, each attempt at one of them, such as `X(0)`.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pipeline_def.kubeflow.client.run import RunView, TaskView

_DRIVER = "-driver"
_ATTEMPT = re.compile(r"\(\d+\)$")
Details = Mapping[str, Any]


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
    views = (_task_view(name, named, waiting, failed=name in failed) for name in names)
    error = (run.get("error") or {}).get("message", "")
    return RunView(str(run.get("state") or "PENDING"), tuple(views), error)


def _task_view(
    name: str, named: Mapping[str, Details], waiting: set[float], *, failed: bool
) -> TaskView:
    detail = named.get(name, {})
    state = _state(detail)
    if failed or not state:
        detail = named.get(f"{name}{_DRIVER}", {})
        attempt = named.get(f"{name}{_DRIVER}(0)", {})
        waits = "PENDING" in (_state(detail), _state(attempt))
        state = "FAILED" if failed else "PENDING" if waits else ""
    start, end = _times(detail)
    seconds = end - start if state in ("SUCCEEDED", "FAILED") and 0 < start <= end else None
    # The API has no state for a cache hit, but no pod ever finishes within a second.
    if state == "SUCCEEDED" and seconds is not None and seconds <= 1:
        state, seconds = "CACHED", None
    # A task runs while its pod is pending; its first attempt starts with the task.
    if state == "RUNNING" and any(0 <= pod - start <= 1 for pod in waiting):
        state = "PENDING"
    return TaskView(name, state, seconds, (detail.get("error") or {}).get("message", ""))


def find_pods(run: Details) -> dict[str, str]:
    """Return the Argo node of the last pod of each started task, or of its failed driver.

    A node refers to others by ID, a hash of a whole name such as
    `images-g9nxq(0).root(0).Trainer(0).executor(0)`, so the names are rebuilt from the root.
    Source: `NodeID` and `initializeNode` of Argo Workflows.
    """
    details = list(_details(run))
    ids = {child.get("pod_name", "") for one in details for child in one.get("child_tasks") or []}
    titles = sorted({_ATTEMPT.sub("", detail["display_name"]) for detail in details})
    failed = {detail["display_name"] for detail in details if _state(detail) == "FAILED"}
    drivers, pods = {}, {}
    for workflow, _ in Counter(node.rpartition("-")[0] for node in ids).most_common(1):
        for name in _node_names(workflow, titles, ids):
            *_, parent, title = (_ATTEMPT.sub("", part) for part in ["", *name.split(".")])
            if title.endswith(_DRIVER) and title in failed:
                drivers[title.removesuffix(_DRIVER)] = node_id(workflow, name)
            elif title == "executor":
                pods[parent] = node_id(workflow, name)
    return drivers | pods


def _node_names(workflow: str, titles: Iterable[str], ids: set[str]) -> Iterator[str]:
    """Yield the whole names of all nodes with these IDs, attempts after what they belong to."""
    names = [workflow]
    for name in names:
        yield name
        attempts = (f"{name}({number})" for number in itertools.count())
        names += itertools.takewhile(lambda one: node_id(workflow, one) in ids, attempts)
        inside = (f"{name}.{title}" for title in titles)
        names += [one for one in inside if node_id(workflow, one) in ids]


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
