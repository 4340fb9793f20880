"""What the compiler writes into the command of a step, and the step reads there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline_def.config.kubeflow import StepConfig

COMMAND = ("python", "-m", "pipeline_def.kubeflow.step.entrypoint")
"""Command of every step, and of each worker that does a part of it."""

FAILED = 1
"""Exit status of a step that ends with a bug, or because others ended; a user's mistake has 2."""

STORAGE = "{storage}"
"""Stands in properties for the folder of pushed models, checkpoints, listings and statistics."""

STORAGE_PARAMETER = "storage"
"""Parameter of the run that sets this folder."""

RECIPE_PARAMETER = "training_recipe"
"""Parameter of the run that names the recipe of the training."""

RESOLVED_PARAMETER = "resolved"
"""Output of a lookup and input of its step: execution properties that were looked up, as JSON."""


@dataclass(frozen=True)
class Setting:
    """Where the value of a parameter of the run goes among the execution properties."""

    parameter: str
    place: Sequence[str]
    """The execution property and, where it is JSON, the keys in it from the outside in."""

    unset: int | None = None
    """Value that stands for null, which a parameter of a run cannot be; None: there is none."""


@dataclass(frozen=True)
class RecipeChoice:
    """Where the parameter of the run that names a recipe goes, and what each recipe changes."""

    property: str
    """The execution property, JSON."""

    values: Mapping[str, Mapping[str, Any]]
    """Recipe → `section.field` → value, of all that any recipe sets and nobody else has."""


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
    """What a step has to know of itself and KFP's launcher does not tell it."""

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
    """Execution properties that are integers: the launcher knows doubles only."""

    settings: Sequence[Setting] = ()
    """Parameters of the run that this step takes."""

    recipes: RecipeChoice | None = None
    """What the parameter `training_recipe` chooses from; None: the step trains nothing."""

    direct: bool = False
    """Whether the step uses remote URIs as they are, instead of the launcher's local copies."""

    workers: WorkerGroup | None = None
    """Workers that do the step's work in pods of their own; None: the step does it itself."""
