"""Start a training from the weights of a pushed model: `model.warm_start`.

The weights are read as arrays by number, and the labels from a text file: nothing of the model is
run or unpickled.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from components.contract.errors import ModelError
from components.contract.example import LABEL_VOCABULARY
from components.contract.model_files import NETWORK_FILE
from components.storage.folder import explaining_errors, is_file, open_folder, read_bytes
from components.storage.saved_model import find_damage, list_versions, model_digest, whole_versions

if TYPE_CHECKING:
    import numpy as np
    import tf_keras

    from components.trainer.config.training import TrainerConfig

"""File of a pushed model: `name` of the network and `size` of its images, pixels."""

# Fraction of the epochs, and factor of the learning rate, of a training that goes on.
_EPOCHS, _RATE = 0.25, 0.5
_LOGGER = logging.getLogger(__name__)
_LABELS = os.path.join("assets", LABEL_VOCABULARY)
_VARIABLES = ("variables/variables.index", "variables/variables.data-00000-of-00001")


@dataclass(frozen=True)
class WarmStart:
    """What a training took over from a pushed model."""

    version: str
    """Path or URL of the model."""
    digest: str
    """`model_digest` of it."""
    kept: list[str]
    """Labels whose outputs continue."""
    new: list[str]
    """Labels with new outputs."""
    gone: list[str]
    """Labels of the model that have no images anymore."""

    @property
    def text(self) -> str:
        """The start in a sentence."""
        counts = ((self.kept, "known"), (self.new, "new"), (self.gone, "gone"))
        labels = ", ".join(f"{len(of):,} {what}" for of, what in counts if of)
        return f"Training started from the weights of {self.version} (labels: {labels})."


def find_start(wanted: str, pushed: str) -> str:
    """Return the folder of the model to start from; "" for the newest if nothing is pushed.

    `wanted` is `ModelConfig.start`, `pushed` the folder of the pushed models.

    Raises:
        ModelError: the wanted model does not exist, or is damaged.
        StorageError: its place cannot be read.
    """
    if not wanted:
        return ""
    if wanted == "true":
        return next(whole_versions(pushed), "") if pushed else ""
    version = os.path.join(pushed, wanted) if wanted.isdecimal() else wanted
    if damage := find_damage(version):
        known = ", ".join(os.path.basename(path) for path in list_versions(pushed)) or "none"
        raise ModelError(
            f"model.warm_start is {wanted}, but {version} cannot be used, as {damage}: name "
            f"another model, or one of the versions in {pushed} ({known})."
        )
    return version


def start_key(wanted: str, pushed: str) -> str:
    """Return a key that changes with the model to start from; "" without one."""
    found = find_start(wanted, pushed)
    return model_digest(found) if found else ""


def shorten(config: TrainerConfig) -> TrainerConfig:
    """Return the configuration of a training that goes on: fewer epochs at a lower rate."""
    training = config.training
    epochs = max(1, round(training.epochs * _EPOCHS))
    rate = training.learning_rate * _RATE
    warmup = training.warmup_epochs * _EPOCHS
    changed = dataclasses.replace(training, epochs=epochs, learning_rate=rate, warmup_epochs=warmup)
    return dataclasses.replace(config, training=changed)


def start_from(
    model: tf_keras.Model, version: str, labels: Sequence[str], config: TrainerConfig
) -> WarmStart:
    """Assign the weights of a pushed model to `model`; new labels keep their random outputs.

    Raises:
        ModelError: the pushed model is of another network, or knows none of the labels.
        StorageError: it cannot be read.
    """
    known = read_bytes(os.path.join(version, _LABELS)).decode().removesuffix("\n").split("\n")
    if not (kept := [label for label in labels if label in known]):
        raise ModelError(
            f"model.warm_start: {version} knows none of the labels of the images: it knows "
            f"{', '.join(known[:5])}."
        )
    _check_network(version, config)
    arrays = _read_arrays(version)
    head, variables = model.layers[-1].weights, model.variables
    if len(arrays) != len(variables):
        raise _other_network(version, f"{len(arrays)} weights instead of {len(variables)}")
    found, outputs = [], 0
    for variable, array in zip(variables, arrays, strict=True):
        is_output = any(variable is of for of in head) and array.shape[-1:] == (len(known),)
        outputs += is_output
        value = _remap(variable.numpy(), array, labels, known) if is_output else array
        if value.shape != variable.shape:
            shapes = f"a weight of shape {list(array.shape)} instead of {list(variable.shape)}"
            raise _other_network(version, shapes)
        found.append(value)
    if not outputs and known != list(labels):
        raise _other_network(version, "other labels, and its last layer is not one of classes")
    for variable, value in zip(variables, found, strict=True):
        variable.assign(value)
    new = [label for label in labels if label not in known]
    gone = [label for label in known if label not in labels]
    return WarmStart(version, model_digest(version), kept, new, gone)


def _remap(
    fresh: np.ndarray[Any, Any],
    array: np.ndarray[Any, Any],
    labels: Sequence[str],
    known: Sequence[str],
) -> np.ndarray[Any, Any]:
    """Return the weights of the outputs [..., labels], by label."""
    if fresh.shape[:-1] != array.shape[:-1]:
        return array
    places = {label: place for place, label in enumerate(known)}
    for place, label in enumerate(labels):
        if label in places:
            fresh[..., place] = array[..., places[label]]
    return fresh


def describe_network(config: TrainerConfig, *, picked: str = "") -> str:
    """Return the content of `NETWORK_FILE`."""
    size = config.transform.seen_size
    return json.dumps({"name": config.model.title, "size": size, "picked": picked})


def _check_network(version: str, config: TrainerConfig) -> None:
    """Compare names and sizes; models of earlier versions have only shapes to compare."""
    path = os.path.join(version, NETWORK_FILE)
    network: Mapping[str, Any] = json.loads(read_bytes(path)) if is_file(path) else {}
    ours = json.loads(describe_network(config))
    for fact, text in (("name", "network"), ("size", "image size")):
        if network.get(fact, ours[fact]) != ours[fact]:
            raise _other_network(version, f"the {text} {network[fact]} instead of {ours[fact]}")


def _other_network(version: str, difference: str) -> ModelError:
    return ModelError(
        f"model.warm_start: {version} has {difference}: set model.name and transform.size as they "
        f"were, or model.warm_start to false."
    )


def _read_arrays(version: str) -> list[np.ndarray[Any, Any]]:
    """Read the weights of an exported model, in the order of the network's variables."""
    import tensorflow as tf

    fs, root = open_folder(version)
    with tempfile.TemporaryDirectory() as folder:
        with explaining_errors("read", version):
            for name in _VARIABLES:
                fs.get_file(f"{root}/{name}", os.path.join(folder, os.path.basename(name)))
        try:
            reader = tf.train.load_checkpoint(os.path.join(folder, "variables"))
            names = [name for name in reader.get_variable_to_shape_map() if "weights/" in name]
            ordered = sorted(names, key=lambda name: int(name.split("/")[1]))
            return [reader.get_tensor(name) for name in ordered]
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            raise ModelError(
                f"model.warm_start: the weights of {version} are damaged: name another version."
            ) from error
