"""Loads the weights of a file into a network, or names the network that they fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import tf_keras

from components.contract.errors import ModelError
from components.contract.rules_of_thumb import OWN_NETWORKS
from components.trainer.config.model import APPLICATIONS, ModelConfig
from components.trainer.networks.layers import Dropout
from components.trainer.networks.parts import Parts, weighted_layers
from components.trainer.networks.weights_file import StoredWeights, read_weights

if TYPE_CHECKING:
    from components.trainer.networks.weights_file import Array

_STANDARDIZATION = "standardization"
# The last layer of classes and, in MobileNetV3, the one before it.
_MAX_TOP_LAYERS = 2

_Pairs = list[tuple[Any, "Array"]]


def load_weights(model: tf_keras.Model, config: ModelConfig) -> None:
    """Load the file of `model.weights` into the backbone of a model.

    A file of `save_backbone` includes the scaling of pixels; one of Keras was made for ImageNet's.

    Raises:
        ConfigurationError: the model cannot be divided.
        ModelError: the file does not exist, or does not fit the network.
    """
    stored = read_weights(config.weights)
    network = Parts.of(model).backbone
    if config.name in APPLICATIONS and _STANDARDIZATION not in stored.layers:
        [network] = [layer for layer in network.layers if isinstance(layer, tf_keras.Model)]
    fitting = (
        pairs
        for pairs in _pairings(stored, network)
        if pairs and all(tuple(variable.shape) == array.shape for variable, array in pairs)
    )
    pairs = next(fitting, None)
    if pairs is None:
        setting = "build_fn" if config.build_fn else "name"
        raise ModelError(
            f"model.weights {config.weights} does not fit model.{setting} "
            f"{config.build_fn or config.name}: {_explain(stored, network, config)}."
        )
    for variable, array in pairs:
        variable.assign(array)


def _pairings(stored: StoredWeights, network: tf_keras.Model) -> Iterator[_Pairs]:
    """Yield the possible ways to match layers of the file and layers of the network.

    Files of Keras 2, and ours, have them in order. Keras's third format names them by class and
    number, newer releases by layer name.
    """
    if stored.in_order:
        ours = [layer.weights for layer in weighted_layers(network)]
        yield _zip(ours, [*stored.layers.values()])
        return
    for by_name in (False, True):
        named = dict(_name_layers(network, by_name=by_name))
        if named.keys() <= stored.layers.keys():
            more = len(stored.layers) - len(named)
            arrays = [stored.layers[name] for name in named]
            yield _zip([*named.values()], arrays) if more <= _MAX_TOP_LAYERS else []


def _zip(ours: list[list[Any]], theirs: list[list[Array]]) -> _Pairs:
    """Pair weights layer by layer; the file may have a few more layers at its end."""
    if not 0 <= len(theirs) - len(ours) <= _MAX_TOP_LAYERS:
        return []
    layers = list(zip(ours, theirs, strict=False))
    if any(len(variables) != len(arrays) for variables, arrays in layers):
        return []
    return [pair for layer in layers for pair in zip(*layer, strict=True)]


def _name_layers(
    model: tf_keras.Model, *, by_name: bool, prefix: str = ""
) -> Iterator[tuple[str, list[Any]]]:
    """Yield name and weights of each layer: by its own name, or by its class and number."""
    numbers: dict[str, int] = {}
    for layer in model.layers:
        kind = _snake_case(type(layer).__name__)
        number = numbers[kind] = numbers.get(kind, -1) + 1
        own = layer.name if by_name else f"{kind}_{number}" if number else kind
        if isinstance(layer, tf_keras.Model):
            yield from _name_layers(layer, by_name=by_name, prefix=f"{prefix}{own}/")
        elif layer.weights and not isinstance(layer, Dropout):
            yield f"{prefix}{own}", layer.weights


def _snake_case(name: str) -> str:
    """Turn `Conv2D` into `conv2d` and `BatchNormalization` into `batch_normalization`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])", "_", name).lower()


def _explain(stored: StoredWeights, network: tf_keras.Model, config: ModelConfig) -> str:
    """Return a clause that names the network of the file, or else the first difference."""
    fitting = stored.network
    if fitting and fitting != (config.build_fn or config.name).rpartition(".")[2]:
        setting = "model.name" if fitting in (*OWN_NETWORKS, *APPLICATIONS) else "model.build_fn"
        return f"it contains weights of {fitting}; set {setting} to that, or use another file"
    ours = weighted_layers(network)
    if stored.in_order:
        for layer, (_, arrays) in zip(ours, stored.layers.items(), strict=False):
            shapes, found = [tuple(v.shape) for v in layer.weights], [a.shape for a in arrays]
            if shapes != found:
                hint = "; model.width must be the same" if config.name in OWN_NETWORKS else ""
                return f"{layer.name} has weights of shapes {shapes}, the file has {found}{hint}"
    return f"it has {len(stored.layers)} layers with weights, the network has {len(ours)}"
