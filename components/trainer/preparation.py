"""What Trainer and Tuner start from: every value is resolved here, and none changes afterwards."""

import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras

from components.contract.configuration import from_dict
from components.contract.errors import ModelError
from components.trainer.config.model import ModelConfig
from components.trainer.config.recipes import resolve
from components.trainer.config.training import TrainerConfig
from components.trainer.export.transform_graph import TransformGraph
from components.trainer.input.augmentation.augment import check_own
from components.trainer.input.shards import Shards
from components.trainer.input.split_statistics import patch_covariance, pixel_moments
from components.trainer.loop.fold_images import choose_folds
from components.trainer.loop.strategy import find_strategy, limit_threads, set_determinism
from components.trainer.networks.networks import build_model, precision
from components.trainer.networks.warm_start import WarmStart, find_start, shorten, start_from
from components.trainer.networks.weights_file import name_network
from components.trainer.trained_on import Ids, check_unseen
from components.trainer.training_input import TrainingInput
from components.trainer.tuned import apply_hyperparameters

_LOGGER = logging.getLogger(__name__)


def read_config(fn_args: Any) -> TrainerConfig:
    """Read the configuration, choose a network if none is set, and take over hyperparameters."""
    config = from_dict(TrainerConfig, fn_args.custom_config)
    if config.model.weights == "auto":
        # Nobody has looked for weights before this step.
        config = dataclasses.replace(
            config, model=dataclasses.replace(config.model, weights="none")
        )
    if config.model.title == "auto":
        config = dataclasses.replace(config, model=name_network(config.model))
        [train] = fn_args.train_files
        images = Shards.of_pattern(train).total
        config, _ = resolve(config, shorter_side=config.transform.seen_size, images=images)
        _LOGGER.info("Network %s, recipe %s.", config.model.title, config.training.recipe)
    if fn_args.hyperparameters:
        config = apply_hyperparameters(config, fn_args.hyperparameters)
    return config


def start_devices(config: TrainerConfig) -> tf.distribute.Strategy:
    """Return the strategy of a training, with the threads and determinism that it asks for."""
    limit_threads()
    strategy = find_strategy(config.training)
    set_determinism(config.training, strategy)
    return strategy


@dataclass(frozen=True)
class Preparation:
    """What a training starts from."""

    graph: TransformGraph
    data: TrainingInput
    """With the configuration as it is from now on."""
    build: Callable[[ModelConfig], tf_keras.Model]
    """Builds a network for the training images, always with the same first weights."""
    model: tf_keras.Model
    """The network, with the weights that training starts from."""
    folds: int
    """0: the eval split selects the epoch."""
    start: WarmStart | None
    """The pushed model whose weights the network has, if there is one."""
    earlier: Ids | None
    """The images that this model was trained on."""


def prepare(fn_args: Any, config: TrainerConfig, strategy: tf.distribute.Strategy) -> Preparation:
    """Find the images that TFX has passed, the graph that transformed them, and the weights.

    Raises:
        ModelError: the pushed model that `model.warm_start` names cannot be used.
    """
    check_own(config.augmentation.fn, size=config.transform.seen_size)
    graph = TransformGraph(fn_args.transform_graph_path)
    replicas = strategy.num_replicas_in_sync
    data = TrainingInput.find(fn_args, config, graph.transformed_spec, replicas=replicas)
    build = _prepare_build(data, classes=len(graph.labels))
    with strategy.scope(), precision(config.training.precision):
        model = build(config.model)
        folds = choose_folds(data, model)
        start, earlier = _start_warm(model, data, [label.decode() for label in graph.labels])
    if start:
        data = dataclasses.replace(data, config=shorten(data.config))
    return Preparation(graph, data, build, model, folds, start, earlier)


def _prepare_build(data: TrainingInput, *, classes: int) -> Callable[[ModelConfig], tf_keras.Model]:
    """Return a function that builds a network for the training images."""
    config = data.config
    mean, variance = pixel_moments(data.read_in_order(data.train))

    @functools.cache
    def find_patches() -> Any:
        return patch_covariance(data.read_in_order(data.train))

    def build(model: ModelConfig) -> tf_keras.Model:
        # However many networks this process has built, the first weights are the same.
        tf_keras.utils.set_random_seed(config.training.seed)
        return build_model(
            model,
            size=config.transform.seen_size,
            classes=classes,
            mean=mean,
            variance=variance,
            patches=find_patches() if model.name == "resnet9" else None,
            seed=config.training.seed,
        )

    return build


def _start_warm(
    model: tf_keras.Model, data: TrainingInput, labels: Sequence[str]
) -> tuple[WarmStart | None, Ids | None]:
    """Start from the pushed model that `model.warm_start` names, if any.

    Returns:
        The start, and the images that the pushed model was trained on; None for a cold start.

    Raises:
        ModelError: it is named by version or place, and cannot be used.
    """
    config, nothing = data.config, (None, None)
    wanted = config.model.start
    if not wanted:
        return nothing
    if not (version := find_start(wanted, config.pushed)):
        _LOGGER.warning("No model has been pushed yet, so this is a cold start.")
        return nothing
    try:
        earlier = check_unseen(version, data.train)
        start = start_from(model, version, labels, config)
    except ModelError as error:
        if wanted != "true":
            raise
        _LOGGER.warning("This is a cold start. %s", error)
        return nothing
    _LOGGER.info("%s", start.text)
    return start, earlier
