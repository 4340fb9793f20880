"""What Tuner and Trainer need before they train: a configuration, devices, images and networks."""

import dataclasses
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import tensorflow as tf
import tf_keras

from components.contract.configuration import from_dict
from components.images.pixel_statistics import patch_covariance, pixel_moments
from components.trainer.config.model import ModelConfig
from components.trainer.config.recipes import resolve
from components.trainer.config.training import TrainerConfig
from components.trainer.export.transform_graph import TransformGraph
from components.trainer.input.augment import check_own
from components.trainer.input.shards import Shards
from components.trainer.loop.distribution.strategy import (
    find_strategy,
    limit_threads,
    set_determinism,
)
from components.trainer.networks.networks import build_model
from components.trainer.networks.weights_file import name_network
from components.trainer.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)


def read_config(fn_args: Any) -> TrainerConfig:
    """Read the configuration, and choose a network for the images if it is not set."""
    config = from_dict(TrainerConfig, fn_args.custom_config)
    if config.model.weights == "auto":
        # Nobody has looked for weights before this step.
        config = dataclasses.replace(
            config, model=dataclasses.replace(config.model, weights="none")
        )
    if config.model.title != "auto":
        return config
    config = dataclasses.replace(config, model=name_network(config.model))
    [train] = fn_args.train_files
    config, _ = resolve(
        config, shorter_side=config.transform.seen_size, images=Shards.of_pattern(train).total
    )
    _LOGGER.info("Network %s, recipe %s.", config.model.title, config.training.recipe)
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
    build: Callable[[ModelConfig], tf_keras.Model]
    """Builds a network for the training images, always with the same first weights."""

    @classmethod
    def of(cls, fn_args: Any, config: TrainerConfig, strategy: tf.distribute.Strategy) -> Self:
        """Find the images that TFX has passed, and the graph that transformed them."""
        check_own(config.augmentation.fn, size=config.transform.seen_size)
        graph = TransformGraph(fn_args.transform_graph_path)
        replicas = strategy.num_replicas_in_sync
        data = TrainingInput.find(fn_args, config, graph.transformed_spec, replicas=replicas)
        return cls(graph, data, _prepare_build(data, classes=len(graph.labels)))


def _prepare_build(data: TrainingInput, *, classes: int) -> Callable[[ModelConfig], tf_keras.Model]:
    """Return a function that builds a network for the training images."""
    config = data.config
    mean, variance = pixel_moments(data.read_in_order(data.train).as_numpy_iterator())

    @functools.cache
    def find_patches() -> Any:
        return patch_covariance(data.read_in_order(data.train).as_numpy_iterator())

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
