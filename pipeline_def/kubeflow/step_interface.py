"""What the compiler writes into the command of a step for the step to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline_def.config.kubeflow import StepConfig

COMMAND = ("python", "-m", "pipeline_def.kubeflow.step.entrypoint")
"""Command of every step, and of each worker of it."""

FAILED = 1
"""Exit status after a bug, or because other workers ended; 2 is for a user's mistake."""

RESOLVED_PARAMETER = "resolved"
"""Output of a lookup and input of its step: the execution properties it found, as JSON."""


Recipes = Mapping[str, Mapping[str, Any]]
"""Training recipe → `section.field` → value."""


@dataclass(frozen=True)
class WorkerGroup:
    """Workers that train together, which the step starts instead of training itself."""

    count: int
    image: str
    """Container image of each worker."""

    settings: StepConfig
    """Resources and settings of each worker."""


@dataclass(frozen=True)
class StepInterface:
    """What a step must know about itself and KFP's launcher does not tell it."""

    step: str = ""
    """Id of the pipeline's step; for a lookup, of the step that it looks things up for."""

    executor: str = ""
    """Dotted path of the executor class."""

    lookup: str = ""
    """Instead of an executor: dotted path of the function that looks up execution properties."""

    pipeline: str = ""
    """Name of the pipeline."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    """Input → dotted path of its artifact class."""

    outputs: Mapping[str, str] = field(default_factory=dict)
    """Output → dotted path of its artifact class."""

    integers: Sequence[str] = ()
    """Execution properties that are integers; the launcher has only doubles."""

    recipes: Recipes = field(default_factory=dict)
    """What the parameter `training_recipe` chooses from; empty: the step does not take it."""

    direct: bool = False
    """Whether the step uses remote URIs as they are, instead of the launcher's local copies."""

    workers: WorkerGroup | None = None
    """Workers that do the work in their own pods; None: the step does it itself."""
