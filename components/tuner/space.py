"""What a search may change: values around the recipe's for each option."""

from collections.abc import Iterable
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from components.contract.rules_of_thumb import OWN_NETWORKS, SMALL_SIDE
from components.trainer.config.recipes import RECIPES, Values, apply_values, get_value
from components.trainer.config.training import TrainerConfig

FLIP = "augmentation.flip"
# Channels that `model.width` 0 stands for.
_WIDTHS = {"cnn": 32, "resnet9": 64}


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


def find_space(plain: TrainerConfig, start: Values) -> dict[str, BaseDistribution]:
    """Return option → what to try.

    `training.search` replaces the values of an option, or adds one.

    Args:
        plain: configuration of trial 0.
        start: where trial 1 differs. The values lie around its own.
    """
    config = apply_values(plain, start)
    training, network = config.training, config.model.name
    decay, epochs, batch = training.weight_decay, training.epochs, training.batch_size
    # Tuned rates beat most specialized methods on few images.
    space = {"training.learning_rate": _around(training.learning_rate)}
    if decay:
        space["training.weight_decay"] = _around(decay)
    values: dict[str, Iterable[Any]] = {
        "training.batch_size": {max(1, batch // 2), batch},
        "augmentation.policy": {"none", "trivial", plain.augmentation.policy},
        FLIP: {plain.augmentation.flip, config.augmentation.flip},
        # Stronger augmentation needs longer trainings.
        "training.epochs": {max(1, epochs // 2), epochs},
        "augmentation.cutmix": {0.0, 1.0, config.augmentation.cutmix},
        "training.label_smoothing": {0.0, 0.1, training.label_smoothing},
        "model.dropout": {0.0, 0.2, 0.5, config.model.dropout},
    }
    if training.metric == "balanced_accuracy":
        values["training.balance"] = {"none", "weights", training.balance}
    if network in OWN_NETWORKS:
        # A narrower network trains longer in the same time.
        width = config.model.width or _WIDTHS[network]
        values["model.width"] = {max(1, width // 2), config.model.width}
    fixed = {key: [value] for key, value in start.items() if key not in {*values, *space}}
    tried = {key: sorted(some) for key, some in values.items()}
    tried |= {**fixed, **plain.training.search}
    return space | {key: CategoricalDistribution([*some]) for key, some in tried.items()}


def _around(value: float) -> BaseDistribution:
    """Return a range, from a third of the value to three times as much, in two digits."""
    low, high = (float(f"{value * factor:.2g}") for factor in (1 / 3, 3))
    return FloatDistribution(low, high, log=True)
