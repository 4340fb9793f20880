"""What Trainer takes over from Tuner: hyperparameters, and the training they were found with."""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from components.contract.configuration import to_dict
from components.contract.errors import ConfigurationError
from components.contract.model_files import CHOSEN_FOLDER, SEARCH_FILE
from components.trainer.config.recipes import apply_values
from components.trainer.config.training import TrainerConfig, can_search
from components.trainer.loop.checkpoint import remove_checkpoints
from components.trainer.trained_on import list_keys
from components.trainer.training_input import TrainingInput

# Sections that decide which weights a training ends with.
_DECISIVE = ("transform", "augmentation", "model", "training", "transfer")

_IMAGES = "images"

FOLDS = "training.folds"


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

    Args:
        config: of the chosen trial.
        data: images of the search.
        facts: of the search.
        checkpoints: folder of the chosen trial's.
        directory: for the files.
    """
    copy_folder(checkpoints, os.path.join(directory, CHOSEN_FOLDER))
    found = {"search": facts, **_identify(config, data)}
    with tf.io.gfile.GFile(os.path.join(directory, SEARCH_FILE), "w") as file:
        file.write(json.dumps(found))


def take_over(tuner_run: str, data: TrainingInput, checkpoints: str) -> dict[str, Any]:
    """Copy the checkpoints of the chosen trial, and return the facts of its search.

    An attempt that finds its own checkpoints goes on from them.

    Raises:
        ConfigurationError: Tuner had other options or images, so this is not the same training.
    """
    with tf.io.gfile.GFile(os.path.join(tuner_run, SEARCH_FILE)) as file:
        found = json.loads(file.read())
    given = json.loads(json.dumps(_identify(data.config, data)))
    for option, value in given.items():
        if found[option] != value:
            what = f"{option} {found[option]}" if option != _IMAGES else "other images"
            raise ConfigurationError(
                f"ImageTuner has trained with {what}, so ImageTrainer cannot go on from it: give "
                "both the same config, examples and hyperparameters, or leave out tuner_run."
            )
    if not tf.io.gfile.exists(checkpoints):
        unfinished = f"{checkpoints}.unfinished"
        remove_checkpoints(unfinished)
        copy_folder(os.path.join(tuner_run, CHOSEN_FOLDER), unfinished)
        tf.io.gfile.rename(unfinished, checkpoints)
    facts: dict[str, Any] = found["search"]
    return facts


def _identify(config: TrainerConfig, data: TrainingInput) -> dict[str, Any]:
    """Return option → value of a training, and a digest of its images in their order."""
    keys = hashlib.sha256()
    for shards in (data.train, data.evaluation):
        keys.update(f"{shards.split} {shards.total}".encode())
        for key in list_keys(shards):
            keys.update(key.encode())
    sections = to_dict(config)
    options = {f"{name}.{key}": one for name in _DECISIVE for key, one in sections[name].items()}
    return {**options, _IMAGES: keys.hexdigest()}


def copy_folder(source: str, target: str) -> None:
    """Copy the files of a folder, and its folders."""
    for folder, _, names in tf.io.gfile.walk(source):
        place = os.path.normpath(os.path.join(target, os.path.relpath(folder, source)))
        tf.io.gfile.makedirs(place)
        for name in names:
            tf.io.gfile.copy(os.path.join(folder, name), os.path.join(place, name), overwrite=True)
