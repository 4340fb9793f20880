"""A run on a cluster: what is asked for, what was started, and how it looks at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Parameter = str | int | float | bool
"""The value of a parameter of a run."""


@dataclass(frozen=True)
class RunRequest:
    """A run to be started."""

    path: str
    """File of the specification."""
    documents: list[Any]
    """What is in the file."""
    name: str
    parameters: Mapping[str, Parameter]
    pipeline_root: str | None = None
    service_account: str | None = None
    cache: bool | None = None
    """Overrides the setting of every task; None: as the specification says."""


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
    node: str = ""
    """Identifier of the node of the workflow whose pod does the task, where that is known."""


@dataclass(frozen=True)
class RunView:
    """A run at one moment."""

    state: str
    tasks: tuple[TaskView, ...]
    error: str = ""
