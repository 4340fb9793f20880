"""Parameters of a run, and where each value goes among the execution properties of a step.

The compiler gives each its default and description; the step writes the run's value into place.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

from pipeline_def.steps import EVALUATOR, EXAMPLE_GEN, TRAINER

STORAGE = "{storage}"
"""Placeholder in properties for the folder of pushed models, checkpoints, listings, statistics."""

STORAGE_PARAMETER = "storage"
"""Parameter of the run that sets this folder."""

RECIPE_PARAMETER = "training_recipe"
"""Parameter of the run that names the training recipe; TRAINER takes it."""

RECIPE_PROPERTY = "custom_config"
"""Execution property of TRAINER, JSON, that a recipe changes."""


@dataclass(frozen=True)
class RunParameter:
    """A parameter that replaces one value of a step's execution properties."""

    name: str
    step: str
    """Id of the step that takes it, with its lookup."""
    place: tuple[str, ...]
    """The execution property and, if it is JSON, the keys in it, outermost first."""
    unset: int | None = None
    """Stands for null, which a parameter of a run cannot be. None: no value does."""

    def read(self, text: Any) -> Any:
        """Return the value at the place, given the execution property."""
        value = get_value(text, self.place[1:])
        return self.unset if value is None else value


_CONFIG = ("config",)
_TRAINING = (RECIPE_PROPERTY, "training")
RUN_PARAMETERS = (
    RunParameter("data", EXAMPLE_GEN.id, ("input_base",)),
    RunParameter("span", EXAMPLE_GEN.id, (*_CONFIG, "span"), unset=-1),
    RunParameter("max_reject_fraction", EXAMPLE_GEN.id, (*_CONFIG, "max_reject_fraction")),
    RunParameter("training_epochs", TRAINER.id, (*_TRAINING, "epochs")),
    RunParameter("training_patience", TRAINER.id, (*_TRAINING, "patience")),
    RunParameter("training_batch_size", TRAINER.id, (*_TRAINING, "batch_size")),
    RunParameter("training_learning_rate", TRAINER.id, (*_TRAINING, "learning_rate")),
    RunParameter("training_seed", TRAINER.id, (*_TRAINING, "seed")),
    RunParameter("min_accuracy", EVALUATOR.id, (*_CONFIG, "min_accuracy")),
    RunParameter("max_accuracy_drop", EVALUATOR.id, (*_CONFIG, "max_accuracy_drop")),
)


def get_value(text: Any, keys: tuple[str, ...]) -> Any:
    """Return the value under `keys` of the JSON `text`; without keys, `text` itself."""
    if not keys or text is None:
        return text
    return functools.reduce(lambda part, key: part[key], keys, json.loads(text))


def set_value(text: Any, keys: tuple[str, ...], value: Any) -> Any:
    """Return the JSON `text` with `value` under `keys`; an integer replaces an integer."""
    if not keys:
        return value
    *parents, last = keys
    document = json.loads(text)
    part = functools.reduce(lambda part, key: part[key], parents, document)
    part[last] = int(value) if is_integer(part[last]) and value is not None else value
    return json.dumps(document, sort_keys=True)


def is_integer(value: Any) -> bool:
    """Return whether a JSON value is an integer; in Python, true and false are integers too."""
    return isinstance(value, int) and not isinstance(value, bool)
