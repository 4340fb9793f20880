"""Nodes of an Argo workflow as the API server lists them, in the form of real responses of 2.17.

Every node is there twice, as `X` and as its first attempt `X(0)`: KFP's manifests set a retry
strategy for every template. A node refers to others by hashes of their whole names.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    nodes = _Nodes(repeated)
    outer = nodes.add(WORKFLOW, Task(state, 0), (".root-driver",))
    nodes.add_tasks(outer, {"root": Task(state, 1, inner=tasks)})
    # The launcher's entries in the same list have no name.
    anonymous = {"task_id": "x", "start_time": stamp(0)}
    return {"state": state, "run_details": {"task_details": [anonymous, *nodes.listed]}}


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


class _Nodes:
    def __init__(self, repeated: bool) -> None:
        self.listed: list[dict[str, Any]] = []
        self._repeated = repeated

    def add_tasks(self, outer: str, tasks: Mapping[str, Task]) -> None:
        """List tasks within the node `outer`, with their drivers."""
        for title, task in tasks.items():
            name = f"{outer}.{title}"
            driver = Task(task.driver, task.start, task.end)
            self._add(f"{name}-driver", driver, [name] if task.driver == "SUCCEEDED" else [])
            if task.driver == "SUCCEEDED":
                self._add_task(name, task)

    def add(self, name: str, task: Task, inner: Sequence[str]) -> str:
        """List a node that contains others, and return the beginning of their names."""
        outer = self._attempt(name, task)
        self._add(name, task, [f"{outer}{title}" for title in inner])
        return outer

    def _add_task(self, name: str, task: Task) -> None:
        titles = [f".{title}-driver" for title in task.inner]
        outer = self.add(name, task, [] if not task.state else titles or [".executor"])
        if task.inner:
            self.add_tasks(outer, task.inner)
        elif task.state == "CACHED":
            self._list(f"{outer}.executor", Task("SKIPPED", task.start, task.start), [])
        elif task.state:
            self._add_executor(f"{outer}.executor", task)

    def _add_executor(self, name: str, task: Task) -> None:
        attempts = task.attempts or (task.state,)
        if not self._repeated:
            self._list(name, Task(attempts[-1], task.start, task.end), [])
            return
        state = "RUNNING" if attempts[-1] == "PENDING" else attempts[-1]
        pods = [f"{name}({number})" for number in range(len(attempts))]
        self._list(name, Task(state, task.start, task.end), pods)
        for number, (pod, pod_state) in enumerate(zip(pods, attempts, strict=True)):
            self._list(pod, Task(pod_state, task.start + 60 * number, task.end), [])

    def _attempt(self, name: str, task: Task) -> str:
        return f"{name}(0)" if self._repeated and task.state else name

    def _add(self, name: str, task: Task, children: list[str]) -> None:
        """List a node and, where attempts are listed, its attempt, which has the children."""
        attempt = self._attempt(name, task)
        if attempt != name:
            self._list(name, task, [attempt])
        self._list(attempt, task, children)

    def _list(self, name: str, task: Task, children: list[str]) -> None:
        state, end = task.state, task.end if task.state else task.start
        if state == "CACHED":
            # Within a second, which may lie in two.
            state, end = "SUCCEEDED", task.start + 1
        self.listed.append(
            {
                "display_name": name.rpartition(".")[2],
                "start_time": stamp(task.start),
                "end_time": stamp(end),
                **({"state": state} if state else {}),
                **({"error": {"code": 2, "message": task.error}} if task.error else {}),
                "child_tasks": [{"pod_name": identifier(child)} for child in children],
            }
        )
