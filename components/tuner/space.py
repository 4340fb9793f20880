"""What a search may change: values around the recipe's for each option, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from components.contract.rules_of_thumb import OWN_NETWORKS, SMALL_SIDE
from components.trainer.config.recipes import RECIPES, Values, apply_values, get_value
from components.trainer.config.training import TrainerConfig

FLIP = "augmentation.flip"
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


def find_start(config: TrainerConfig, *, images: int, bfloat16: bool) -> dict[str, Any]:
    """Return option → value where the first trial differs from the recipe's training.

    It trains ResNet-9 instead of a smaller network on small images, mirrors them, and has stronger
    augmentation and twice as many epochs. Options that the user has set stay.

    Args:
        config: of trial 0.
        images: number of training images.
        bfloat16: whether this machine computes in it faster than in float32.
    """
    own = config.model.name in OWN_NETWORKS and not config.model.build_fn
    small = own and (config.transform.size or 0) <= SMALL_SIDE
    start: dict[str, Any] = {}
    if small and config.model.name != "resnet9":
        network = {"model.name": "resnet9", **RECIPES["cifar"](images)}
        # Its options only suit each other, and a width suits a network.
        free = len(list_free(config, network)) == len(network)
        if free and "model.width" not in config.training.search:
            start = network
    epochs = 2 * start.get("training.epochs", config.training.epochs)
    start |= {"training.epochs": epochs, "augmentation.policy": "trivial"}
    if config.training.schedule != "constant":
        start["training.keep"] = "last"
    if small:
        start[FLIP] = True
    if own and bfloat16:
        start["training.precision"] = "bfloat16"
    return list_changes(config, list_free(config, start))


def list_free(config: TrainerConfig, values: Values) -> dict[str, Any]:
    """Return the values that `training.search` allows."""
    allowed = config.training.search
    return {key: one for key, one in values.items() if one in allowed.get(key, [one])}


def list_changes(config: TrainerConfig, values: Values) -> dict[str, Any]:
    """Return those of the values that differ from the configuration's."""
    return {key: value for key, value in values.items() if get_value(config, key) != value}


def find_space(plain: TrainerConfig, start: Values) -> dict[str, Choices]:
    """Return option → what to try, those that bring the most first.

    `training.search` replaces the values of an option, or adds one.

    Args:
        plain: configuration of trial 0.
        start: where trial 1 differs. The values lie around its own.
    """
    config = apply_values(plain, start)
    training, network = config.training, config.model.name
    rate, decay, epochs = training.learning_rate, training.weight_decay, training.epochs
    batch = training.batch_size
    space = {
        "training.learning_rate": Choices(
            _around(rate), "Tuned rates beat most specialized methods on few images.", between=True
        ),
        "training.batch_size": Choices(
            sorted({max(1, batch // 2), batch}), "Smaller batches helped with few images."
        ),
        "augmentation.policy": Choices(
            sorted({"none", "trivial", plain.augmentation.policy}),
            "Helps unless colors or shapes distinguish the classes.",
        ),
        FLIP: Choices(
            sorted({plain.augmentation.flip, config.augmentation.flip}),
            "Mirrored objects keep their class; text does not.",
        ),
        "training.epochs": Choices(
            [max(1, epochs // 2), epochs], "Stronger augmentation needs longer trainings."
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
    if training.metric == "balanced_accuracy":
        space["training.balance"] = Choices(
            sorted({"none", "weights", training.balance}), "Helps rare classes."
        )
    if network in OWN_NETWORKS:
        width = config.model.width or _WIDTHS[network]
        space["model.width"] = Choices(
            [max(1, width // 2), config.model.width],
            "A narrower network trains longer in the same time.",
        )
    for key, value in start.items():
        space.setdefault(key, Choices([value], "Has helped most on other images."))
    for key, values in plain.training.search.items():
        space[key] = Choices(values, "You have set it.")
    return space


def _around(value: float) -> list[float]:
    """Return a third of the value and three times as much, in two digits."""
    return [float(f"{value * factor:.2g}") for factor in (1 / 3, 3)]
