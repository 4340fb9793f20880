"""Loads the weights of a file into a network, and saves those of its backbone."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import tensorflow as tf
import tf_keras

from components.contract.errors import ModelError
from components.contract.rules_of_thumb import OWN_NETWORKS
from components.trainer.config.model import ModelConfig
from components.trainer.networks.layers import Dropout
from components.trainer.networks.parts import Parts, is_divided, leaves
from components.trainer.networks.weights_file import StoredWeights, read_weights, write_weights


def load_weights(model: tf_keras.Model, config: ModelConfig) -> None:
    """Load the file of `model.weights`, by `save_backbone`, into the backbone of a model.

    Raises:
        ModelError: the file does not exist, or does not fit the network.
    """
    stored = read_weights(config.weights)
    ours, theirs = _weighted_layers(Parts.of(model).backbone), [*stored.layers.values()]
    shapes = [[tuple(variable.shape) for variable in layer.weights] for layer in ours]
    if shapes != [[array.shape for array in arrays] for arrays in theirs]:
        raise ModelError(
            f"model.weights {config.weights} does not fit model.name {config.name}: "
            f"{_explain(stored, ours, config)}."
        )
    for layer, arrays in zip(ours, theirs, strict=True):
        for variable, array in zip(layer.weights, arrays, strict=True):
            variable.assign(array)


def _explain(stored: StoredWeights, ours: list[Any], config: ModelConfig) -> str:
    """Return a clause that names the network of the file, or else the first difference."""
    if stored.network != config.name:
        return f"it contains weights of {stored.network}; set model.name to that"
    for layer, arrays in zip(ours, stored.layers.values(), strict=False):
        shapes, given = [tuple(v.shape) for v in layer.weights], [a.shape for a in arrays]
        if shapes != given:
            hint = "; model.width must be the same" if config.name in OWN_NETWORKS else ""
            return f"{layer.name} has weights of shapes {shapes}, the file has {given}{hint}"
    return f"it has {len(stored.layers)} layers with weights, the network has {len(ours)}"


def save_backbone(model: tf_keras.Model, path: str) -> bool:
    """Write the weights of the backbone, from which `model.weights` starts other trainings.

    They include mean and variance of the pixels. A network of the user has no backbone: return
    False. Nothing may be frozen, which changes Keras's order in a layer.
    """
    if not is_divided(model):
        return False
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, "weights")
        arrays: dict[str, Any] = {}
        for layer in _weighted_layers(Parts.of(model).backbone):
            # Models within a model may have layers of the same name.
            name = layer.name if layer.name not in arrays else f"{layer.name}_{len(arrays)}"
            arrays[name] = layer.get_weights()
        write_weights(local, arrays, network=model.name)
        tf.io.gfile.copy(local, path, overwrite=True)
    return True


def _weighted_layers(model: tf_keras.Model) -> list[Any]:
    """Return the layers with weights, in order, without the call counters of dropout."""
    return [layer for layer in leaves(model) if layer.weights and not isinstance(layer, Dropout)]
