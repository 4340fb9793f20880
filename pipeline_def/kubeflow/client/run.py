"""Requested runs, started runs, and the state of a run at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Parameter = str | int | float | bool
"""Value of a run parameter."""

STOPPED = "CANCELED"
"""State of a stopped run or task."""

RUN_ENDS = frozenset({"SUCCEEDED", "FAILED", STOPPED, "SKIPPED"})
"""Final states of a run; a task may also be CACHED."""


def describe(state: str) -> str:
    """Return a state as users see it."""
    return "STOPPED" if state == STOPPED else state


@dataclass(frozen=True)
class RunRequest:
    """A run to start."""

    path: str
    """File of the specification."""
    documents: list[Any]
    """Contents of the file."""
    name: str
    parameters: Mapping[str, Parameter]
    pipeline_root: str | None = None
    service_account: str | None = None
    no_cache: bool = False
    """Whether every step runs, whatever is in the cache."""


@dataclass(frozen=True)
class StartedRun:
    """A started run."""

    run_id: str
    url: str
    """Its page."""


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

    def failed_task(self) -> TaskView | None:
        """Return the first failed task, preferably one that gives its reason."""
        failed = [task for task in self.tasks if task.state == "FAILED"]
        return next((task for task in failed if task.error), failed[0] if failed else None)
