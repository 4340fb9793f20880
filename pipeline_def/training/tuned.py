"""What Trainer takes over from Tuner: hyperparameters, and the training they were found with."""

import json
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from components.contract.errors import ConfigurationError
from components.contract.model_files import CHOSEN_FOLDER, SEARCH_FILE
from pipeline_def.config.recipes import apply_values
from pipeline_def.config.training import TrainerConfig, can_search
from pipeline_def.training.checkpoint import remove_checkpoints

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


def take_over(tuner_run: str, checkpoints: str) -> dict[str, Any]:
    """Copy the checkpoints of the chosen trial, and return the facts of its search.

    An attempt that finds its own checkpoints goes on from them.
    """
    if not tf.io.gfile.exists(checkpoints):
        unfinished = f"{checkpoints}.unfinished"
        remove_checkpoints(unfinished)
        copy_folder(os.path.join(tuner_run, CHOSEN_FOLDER), unfinished)
        tf.io.gfile.rename(unfinished, checkpoints)
    with tf.io.gfile.GFile(os.path.join(tuner_run, SEARCH_FILE)) as file:
        facts: dict[str, Any] = json.loads(file.read())
    return facts


def copy_folder(source: str, target: str) -> None:
    """Copy the files of a folder, and its folders."""
    for folder, _, names in tf.io.gfile.walk(source):
        place = os.path.normpath(os.path.join(target, os.path.relpath(folder, source)))
        tf.io.gfile.makedirs(place)
        for name in names:
            tf.io.gfile.copy(os.path.join(folder, name), os.path.join(place, name), overwrite=True)
