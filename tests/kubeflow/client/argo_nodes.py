"""Nodes of an Argo workflow as the API server lists them, in the form of real responses of 2.17.

Every node is there twice, as `X` and as its first attempt `X(0)`: KFP's manifests set a retry
strategy for every template. Nodes refer to others by hashes of their whole names.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

WORKFLOW = "images-x7k2p"


@dataclass(frozen=True)
class Task:
    """A task; times are seconds since the run began."""

    state: str = "SUCCEEDED"
    """As in the API, or our CACHED; empty: not started."""
    start: int = 10
    end: int | None = None
    attempts: tuple[str, ...] = ()
    """States of its pods; empty: one pod in the task's state."""
    driver: str = "SUCCEEDED"
    inner: Mapping[str, Task] = field(default_factory=dict)
    """Tasks of a stage."""
    error: str = ""


def listed(
    tasks: Mapping[str, Task], state: str = "RUNNING", *, repeated: bool = True
) -> dict[str, Any]:
    """Return the response to a request for a run.

    Args:
        tasks: Tasks of the root.
        state: State of the run.
        repeated: Whether attempts are listed, as since 2.17.
    """
    first = "(0)" if repeated else ""
    nodes = {WORKFLOW: Task(state, 0), f"{WORKFLOW}{first}.root": Task(state, 1)}
    nodes |= _nodes(f"{WORKFLOW}{first}.root{first}", tasks, first)
    if repeated:
        again = [(f"{n}(0)", task) for n, task in nodes.items() if task.state and n[-1] != ")"]
        nodes.update((name, task) for name, task in again if name not in nodes)
    details = [_describe(name, task) for name, task in nodes.items()]
    # Who refers to whom does not matter here.
    details[0]["child_tasks"] = [{"pod_name": identifier(name)} for name in nodes]
    # The launcher's entries in the same list have no name.
    anonymous = {"task_id": "x", "start_time": stamp(0)}
    return {"state": state, "run_details": {"task_details": [anonymous, *details]}}


def listed_natively(states: Mapping[str, str], run: str = "RUNNING") -> dict[str, Any]:
    """Return the response to a request for a whole run, as releases without ML Metadata give it."""
    tasks = []
    for number, (name, state) in enumerate(states.items()):
        ran = state not in ("CACHED", "PENDING")
        kinds = {"system-container-driver": "DRIVER", "system-container-impl": "EXECUTOR"}
        pods = [{"name": f"{WORKFLOW}-{t}-{number}", "type": kind} for t, kind in kinds.items()]
        times = {"create_time": stamp(number), "end_time": stamp(number + 60)}
        task = {"name": name, "display_name": "", "state": state, "type": "RUNTIME", **times}
        error = {"status_metadata": {"message": "no space left"}} if state == "FAILED" else {}
        tasks.append({**task, "pods": pods if ran else pods[:1], **error})
    root = {"name": "ROOT", "display_name": "run", "state": "RUNNING", "type": "ROOT"}
    return {"state": run, "task_count": len(tasks) + 1, "tasks": [root, *tasks]}


def _nodes(outer: str, tasks: Mapping[str, Task], first: str) -> dict[str, Task]:
    """Return the nodes of tasks within `outer` by name, without first attempts."""
    nodes = {}
    for title, task in tasks.items():
        name = f"{outer}.{title}"
        nodes[f"{name}-driver"] = Task(task.driver, task.start, task.end)
        if task.driver != "SUCCEEDED":
            continue
        nodes[name] = task
        nodes |= _nodes(f"{name}{first}", task.inner, first)
        if not task.inner and task.state:
            nodes |= dict(_pods(f"{name}{first}.executor", task))
    return nodes


def _pods(name: str, task: Task) -> Iterator[tuple[str, Task]]:
    if task.state == "CACHED":
        yield name, replace(task, state="SKIPPED", end=task.start)
        return
    attempts = task.attempts or (task.state,)
    yield name, replace(task, state="RUNNING" if attempts[-1] == "PENDING" else attempts[-1])
    for number, state in enumerate(task.attempts):
        yield f"{name}({number})", replace(task, state=state, start=task.start + 60 * number)


def pod_of(*path: str, attempt: int = 0) -> str:
    """Return the ID of the node with the pod of a task, in 2.17; the path has its stage first."""
    inside = "".join(f".{name}(0)" for name in path)
    return identifier(f"{WORKFLOW}(0).root(0){inside}.executor({attempt})")


def identifier(name: str) -> str:
    """Return the ID of a node: FNV-1a of its whole name, as Argo makes it."""
    value = 0x811C9DC5
    for byte in name.encode():
        value = ((value ^ byte) * 0x01000193) % 2**32
    return name if name == WORKFLOW else f"{WORKFLOW}-{value}"


def stamp(second: int | None) -> str:
    """Return the API's text for a time; the year 1 for none."""
    if second is None:
        return "0001-01-01T00:00:00Z"
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(0, second)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _describe(name: str, task: Task) -> dict[str, Any]:
    state, end = task.state, task.end if task.state else task.start
    if state == "CACHED":
        # Within a second, which may lie in two.
        state, end = "SUCCEEDED", task.start + 1
    return {
        "display_name": name.rpartition(".")[2],
        "start_time": stamp(task.start),
        "end_time": stamp(end),
        **({"state": state} if state else {}),
        **({"error": {"code": 2, "message": task.error}} if task.error else {}),
    }
