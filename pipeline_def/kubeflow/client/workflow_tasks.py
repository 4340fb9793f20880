"""Finds the pipeline's own tasks among the nodes of a run that the open-source API lists."""

from __future__ import annotations

import collections
import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_def.kubeflow.client.run import RunView, TaskView
from pipeline_def.kubeflow.client.workflow_nodes import Node, find_nodes, walk, without_attempt

_EXECUTOR = "executor"
_DRIVER = "-driver"
# Nodes of the workflow that are not tasks of the pipeline.
_INTERNAL = re.compile(r"root|executor|iteration-.*|.*\.onExit")


def run_view(run: Mapping[str, Any]) -> RunView:
    """Return the run with the pipeline's own tasks, without the groups that hold them.

    The backend lists every node of the Argo workflow and, since 2.17, every attempt at one: the
    workflow itself, at first alone, `root`, for each task its driver, the task, and within this its
    `executor`, whose parent is not told. A group has drivers of its own tasks instead.
    """
    details = (run.get("run_details") or {}).get("task_details") or []
    nodes = _read_nodes(details if len(details) > 1 else [])
    listed = sorted(nodes.details.items(), key=lambda item: _begun(item[1]))
    tasks = [task for name, detail in listed if (task := _view(nodes, name, detail))]
    error = (run.get("error") or {}).get("message", "")
    return RunView(str(run.get("state") or "PENDING"), tuple(tasks), error)


@dataclass(frozen=True)
class _Nodes:
    """What is listed: once for every name, without attempts."""

    details: Mapping[str, dict[str, Any]]
    """Name → the node, not one of its attempts; all names but that of executors are unique."""
    executors: list[dict[str, Any]]
    """Executors and their attempts, of all tasks."""
    known: Mapping[str, Node]
    """Name → the node in the tree, as far as its identifier is known."""
    groups: frozenset[str]
    """Names of what holds tasks."""


def _read_nodes(details: list[dict[str, Any]]) -> _Nodes:
    ids = {child.get("pod_name", "") for d in details for child in d.get("child_tasks") or []}
    workflows = collections.Counter(re.sub(r"-\d+$", "", one) for one in ids)
    named = {title: d for d in details if (title := d.get("display_name"))}
    known: dict[str, Node] = {}
    groups = set(workflows)
    for workflow, _ in workflows.most_common(1):
        for node in walk(find_nodes(workflow, named, ids)):
            known[node.title] = node
            if any(child.title.endswith(_DRIVER) for child in node.children):
                groups.add(node.title)
    executors = [d for d in details if without_attempt(d.get("display_name", "")) == _EXECUTOR]
    whole = {title: d for title, d in named.items() if without_attempt(title) == title}
    return _Nodes(whole, executors, known, frozenset(groups))


def _view(nodes: _Nodes, name: str, detail: dict[str, Any]) -> TaskView | None:
    """Return a task, or the driver that has to prepare it first; None for every other node."""
    state, label = str(detail.get("state") or ""), name
    if name.endswith(_DRIVER) and f"{name}{_DRIVER}" not in nodes.details:
        task = name.removesuffix(_DRIVER)
        if state == "FAILED":
            label = f"{task} (its preparation)"
        elif task in nodes.details:
            return None
        else:
            label, state = task, state if state == "PENDING" else ""
    elif _INTERNAL.fullmatch(name) or name in nodes.groups:
        return None
    start, end = _times(detail)
    seconds = end - start if 0 < start <= end else None
    state = _state(nodes, name, state, start=start, seconds=seconds)
    error = (detail.get("error") or {}).get("message", "")
    pod = _pod(nodes.known.get(name))
    key = str(detail.get("task_id") or name)
    return TaskView(key, label, state, seconds, error, pod.last_attempt if pod else "")


def _pod(node: Node | None) -> Node | None:
    """Return the node whose pod does the work: the executor of a task, or a driver itself."""
    if node is None or node.title.endswith(_DRIVER):
        return node
    return next((child for child in node.children if child.title == _EXECUTOR), None)


def _state(nodes: _Nodes, name: str, state: str, *, start: float, seconds: float | None) -> str:
    """Return the state of a task, which the API knows less well than its nodes tell."""
    if state == "RUNTIME_STATE_UNSPECIFIED":
        return ""
    # The API has no state for a cache hit: the task then succeeds at once around an executor that
    # is skipped. A pod never gets through in a second.
    if state == "SUCCEEDED" and seconds is not None and seconds <= 1:
        skipped = (_times(d)[0] for d in nodes.executors if d.get("state") == "SKIPPED")
        return "CACHED" if any(start <= at <= start + seconds for at in skipped) else state
    if state == "RUNNING" and _is_pending(nodes, name, start):
        return "PENDING"
    return state


def _is_pending(nodes: _Nodes, name: str, start: float) -> bool:
    """Say whether the pod of a running task has not started.

    Attempts do not tell whose they are: one of two tasks that began in the same second may be taken
    for the other.
    """
    pod = _pod(nodes.known.get(name))
    attempts = len(pod.attempts) if pod else 0
    title = f"{_EXECUTOR}({attempts - 1})" if attempts else _EXECUTOR
    waiting = (
        _times(detail)[0]
        for detail in nodes.executors
        if detail["display_name"] == title and detail.get("state") == "PENDING"
    )
    # Another attempt begins later than its task.
    return any(abs(at - start) <= 1 or (attempts > 1 and at > start) for at in waiting)


def _begun(detail: dict[str, Any]) -> tuple[bool, float]:
    """Order what has begun by time, before what has not."""
    return not detail.get("state"), _times(detail)[0]


def _times(detail: dict[str, Any]) -> tuple[float, float]:
    return _seconds(detail.get("start_time")), _seconds(detail.get("end_time"))


def _seconds(stamp: Any) -> float:
    """Return seconds since 1970; 0 for none, and for the year 1 that the backend has for none."""
    try:
        return max(0.0, datetime.datetime.fromisoformat(str(stamp)).timestamp())
    except (ValueError, OverflowError):
        return 0.0
