"""What Trainer and Tuner start from: every value is resolved here, and none changes afterwards."""

import dataclasses
import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras

from components.contract.artifact_files import read_json
from components.contract.configuration import from_dict, to_dict
from components.contract.errors import ConfigurationError
from components.contract.example import SHA256
from components.contract.model_files import CHOSEN_FOLDER, SEARCH_FILE
from components.images.pixel_statistics import patch_covariance, pixel_moments
from components.records.tfrecord import read_features
from components.storage.folder import write_json
from components.storage.transfer import copy_folder, remove_folder
from components.trainer.config.model import ModelConfig
from components.trainer.config.recipes import apply_values, choose_weights, resolve
from components.trainer.config.training import TrainerConfig, can_search
from components.trainer.export.signatures import TransformGraph
from components.trainer.input.augment import check_own
from components.trainer.input.shards import Shards
from components.trainer.loop.fold_images import choose_folds
from components.trainer.loop.strategy import find_strategy, limit_threads, set_determinism
from components.trainer.networks.imagenet import check_imagenet
from components.trainer.networks.networks import build_model, precision
from components.trainer.networks.weights_file import name_network
from components.trainer.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

# Sections that decide which weights a training ends with.
_DECISIVE = ("transform", "augmentation", "model", "training", "transfer")

_IMAGES = "images"
_KEY = SHA256.encode()

FOLDS = "training.folds"


def read_config(fn_args: Any) -> TrainerConfig:
    """Read the configuration, choose a network if none is set, and take over hyperparameters.

    Raises:
        ModelError: ImageNet's weights are wanted, but not installed, or damaged.
    """
    config = from_dict(TrainerConfig, fn_args.custom_config)
    if "auto" in (config.model.title, config.model.weights):
        [train] = fn_args.train_files
        images, side = Shards.of_pattern(train).total, config.transform.seen_size
        model = name_network(config.model)
        config = dataclasses.replace(config, model=model)
        if model.title == "auto":
            config, _ = resolve(config, shorter_side=side, images=images)
        else:
            model = choose_weights(config, shorter_side=side, images=images)
            config = dataclasses.replace(config, model=model)
        _LOGGER.info("Network %s, recipe %s.", config.model.title, config.training.recipe)
    if fn_args.hyperparameters:
        config = apply_hyperparameters(config, fn_args.hyperparameters)
    check_imagenet(config.model)
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


def prepare(fn_args: Any, config: TrainerConfig, strategy: tf.distribute.Strategy) -> Preparation:
    """Find the images that TFX has passed, the graph that transformed them, and the weights."""
    check_own(config.augmentation.fn, size=config.transform.seen_size)
    graph = TransformGraph(fn_args.transform_graph_path)
    replicas = strategy.num_replicas_in_sync
    data = TrainingInput.find(fn_args, config, graph.transformed_spec, replicas=replicas)
    build = _prepare_build(data, classes=len(graph.labels))
    with strategy.scope(), precision(config.training.precision):
        model = build(config.model)
    return Preparation(graph, data, build, model, choose_folds(data, model))


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


def apply_hyperparameters(
    config: TrainerConfig, hyperparameters: Mapping[str, Any]
) -> TrainerConfig:
    """Return the configuration with the values of KerasTuner's `HyperParameters.get_config()`.

    Raises:
        ConfigurationError: a name is not an option of training, or a value is not allowed.
    """
    values = hyperparameters["values"]
    for name in values:
        if name != FOLDS and not can_search(name):
            raise ConfigurationError(
                f"The hyperparameters name {name!r}, which is not an option of the sections "
                "training, transfer, augmentation and model: pass those that ImageTuner has found."
            )
    return apply_values(config, values)


def save_trained(
    config: TrainerConfig,
    data: TrainingInput,
    facts: dict[str, Any],
    *,
    checkpoints: str,
    directory: str,
) -> None:
    """Write what `take_over` reads: the training of the chosen trial, and how it was found.

    `config` and `checkpoints`, a folder, are those of the chosen trial.
    """
    copy_folder(checkpoints, os.path.join(directory, CHOSEN_FOLDER))
    content = {"search": facts, **_identify(config, data)}
    write_json(os.path.join(directory, SEARCH_FILE), content)


def take_over(tuner_run: str, data: TrainingInput, checkpoints: str) -> dict[str, Any]:
    """Copy the checkpoints of the chosen trial, and return the facts of its search.

    An attempt that finds its own checkpoints goes on from them.

    Raises:
        ConfigurationError: Tuner had other options or images, so this is not the same training.
    """
    content = read_json(os.path.join(tuner_run, SEARCH_FILE))
    given = json.loads(json.dumps(_identify(data.config, data)))
    for option, value in given.items():
        if content[option] != value:
            what = f"{option} {content[option]}" if option != _IMAGES else "other images"
            raise ConfigurationError(
                f"ImageTuner has trained with {what}, so ImageTrainer cannot go on from it: give "
                "both the same config, examples and hyperparameters, or leave out tuner_run."
            )
    if not tf.io.gfile.exists(checkpoints):
        unfinished = f"{checkpoints}.unfinished"
        remove_folder(unfinished)
        copy_folder(os.path.join(tuner_run, CHOSEN_FOLDER), unfinished)
        tf.io.gfile.rename(unfinished, checkpoints)
    facts: dict[str, Any] = content["search"]
    return facts


def _identify(config: TrainerConfig, data: TrainingInput) -> dict[str, Any]:
    """Return option → value of a training, and a digest of its images in their order."""
    keys = hashlib.sha256()
    for shards in (data.train, data.evaluation):
        keys.update(f"{shards.split} {shards.total}".encode())
        for path in shards.paths:
            for features in read_features(path, (_KEY,)):
                keys.update(features.get(_KEY, b""))
    sections = to_dict(config)
    options = {
        f"{name}.{key}": value for name in _DECISIVE for key, value in sections[name].items()
    }
    return {**options, _IMAGES: keys.hexdigest()}
