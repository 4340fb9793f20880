"""What a search may change: a few values around the recipe's for each option, and why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.contract.errors import ConfigurationError
from components.contract.rules_of_thumb import OWN_NETWORKS
from pipeline_def.config.recipes import Values, apply_values, get_value
from pipeline_def.config.training import TrainerConfig

# Channels that `model.width` 0 stands for.
_WIDTHS = {"cnn": 32, "resnet9": 64}
_TRIES = 100


@dataclass(frozen=True)
class Choices:
    """The values of an option that a search tries."""

    values: Sequence[Any]
    why: str
    """Reason for the range; a sentence."""


def find_space(config: TrainerConfig) -> dict[str, Choices]:
    """Return option → what to try, those that bring the most first.

    `training.search` replaces the values of an option, or adds one.
    """
    training, network = config.training, config.model.name
    rate, decay, epochs = training.learning_rate, training.weight_decay, training.epochs
    space = {
        "training.learning_rate": Choices(
            _around(rate), "Tuned rates beat most specialized methods on few images."
        ),
        "augmentation.policy": Choices(
            ["none", "trivial"], "Helps unless colors or shapes distinguish the classes."
        ),
        "training.epochs": Choices(
            [epochs, 2 * epochs], "Stronger augmentation needs longer trainings."
        ),
        "augmentation.cutmix": Choices([0.0, 1.0], "Regularizes long trainings."),
        "training.label_smoothing": Choices(
            sorted({0.0, 0.1, training.label_smoothing}), "Helps with noisy labels."
        ),
        "model.dropout": Choices(
            sorted({0.0, 0.2, 0.5, config.model.dropout}), "Few images need more."
        ),
    }
    if decay:
        space["training.weight_decay"] = Choices(
            _around(decay), "Its best value depends on the number of images."
        )
    if network in OWN_NETWORKS:
        width = config.model.width or _WIDTHS[network]
        space["model.width"] = Choices(
            [max(1, width // 2), width], "A narrower network trains longer in the same time."
        )
    for key, values in training.search.items():
        space[key] = Choices(values, "You have set it.")
    return space


def _around(value: float) -> list[float]:
    """Return a third of the value, the value, and three times as much, in two digits."""
    return [float(f"{value * factor:.2g}") for factor in (1 / 3, 1, 3)]


def draw_trials(config: TrainerConfig, count: int) -> list[Values]:
    """Draw up to `count` different trials from the space; the same for the same seed.

    Each is a valid configuration, and differs from `config`.
    """
    space, generator = find_space(config), np.random.default_rng(config.training.seed)
    drawn: dict[str, Values] = {}
    most = math.prod(len(choices.values) for choices in space.values())
    for _ in range(_TRIES + count):
        if len(drawn) == min(count, most):
            break
        values = {
            key: choices.values[int(generator.integers(len(choices.values)))]
            for key, choices in space.items()
        }
        try:
            changed = apply_values(config, values)
        except ConfigurationError:
            continue  # Such as weight decay for adam.
        if changed != config:
            drawn.setdefault(repr(values), values)
    return list(drawn.values())


def list_changes(config: TrainerConfig, values: Values) -> dict[str, Any]:
    """Return those of the values that differ from the configuration's."""
    return {key: value for key, value in values.items() if get_value(config, key) != value}
