"""What a search may change: values around the recipe's for each option, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from components.contract.rules_of_thumb import OWN_NETWORKS
from pipeline_def.config.training import TrainerConfig

# Channels that `model.width` 0 stands for.
_WIDTHS = {"cnn": 32, "resnet9": 64}


@dataclass(frozen=True)
class Choices:
    """The values of an option that a search tries."""

    values: Sequence[Any]
    why: str
    """Reason for the range; a sentence."""
    between: bool = False
    """Whether the values are the ends of a range, whose logarithm is drawn uniformly at first."""


def find_space(config: TrainerConfig) -> dict[str, Choices]:
    """Return option → what to try, those that bring the most first.

    The values include the recipe's, as proposals learn from no trial outside of the space.
    `training.search` replaces the values of an option, or adds one.
    """
    training, network = config.training, config.model.name
    rate, decay, epochs = training.learning_rate, training.weight_decay, training.epochs
    space = {
        "training.learning_rate": Choices(
            _around(rate), "Tuned rates beat most specialized methods on few images.", between=True
        ),
        "augmentation.policy": Choices(
            sorted({"none", "trivial", config.augmentation.policy}),
            "Helps unless colors or shapes distinguish the classes.",
        ),
        "training.epochs": Choices(
            [epochs, 2 * epochs], "Stronger augmentation needs longer trainings."
        ),
        "augmentation.cutmix": Choices(
            sorted({0.0, 1.0, config.augmentation.cutmix}), "Regularizes long trainings."
        ),
        "training.label_smoothing": Choices(
            sorted({0.0, 0.1, training.label_smoothing}), "Helps with noisy labels."
        ),
        "model.dropout": Choices(
            sorted({0.0, 0.2, 0.5, config.model.dropout}), "Few images need more."
        ),
    }
    if decay:
        space["training.weight_decay"] = Choices(
            _around(decay), "Its best value depends on the number of images.", between=True
        )
    if network in OWN_NETWORKS:
        width = config.model.width or _WIDTHS[network]
        space["model.width"] = Choices(
            [max(1, width // 2), config.model.width],
            "A narrower network trains longer in the same time.",
        )
    for key, values in training.search.items():
        space[key] = Choices(values, "You have set it.")
    return space


def _around(value: float) -> list[float]:
    """Return a third of the value and three times as much, in two digits."""
    return [float(f"{value * factor:.2g}") for factor in (1 / 3, 3)]
