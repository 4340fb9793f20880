"""Weights of a file into a network, if they fit; else the name of the network that they do fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import tf_keras

from components.contract.errors import ModelError
from pipeline_def.config.model import OWN_NETWORKS, ModelConfig
from pipeline_def.model.applications import APPLICATIONS
from pipeline_def.model.layers import Dropout
from pipeline_def.model.parts import Parts, saved_layers
from pipeline_def.model.weights_file import Stored, read_weights

if TYPE_CHECKING:
    from pipeline_def.model.weights_file import Array

_STANDARDIZATION = "standardization"
# The last layer of classes and, in MobileNetV3, the one before it.
_MOST_TOP_LAYERS = 2

_Pairs = list[tuple[Any, "Array"]]


def load_weights(model: tf_keras.Model, config: ModelConfig) -> None:
    """Set all weights of the backbone of a model to those of the file that `model.weights` names.

    A file that `save_backbone` has written says how its network saw the pixels, and so does the
    backbone afterwards; one that Keras has written was made for the pixels of ImageNet.

    Args:
        model: in two parts.
        config: with `weights`, and with `name` or `build_fn`.

    Raises:
        ConfigurationError: the model cannot be divided.
        ModelError: there is no such file, or its weights are not of this network.
    """
    stored = read_weights(config.weights)
    network = Parts.of(model).backbone
    if config.name in APPLICATIONS and _STANDARDIZATION not in stored.layers:
        [network] = [layer for layer in network.layers if isinstance(layer, tf_keras.Model)]
    pairs = _pair(stored, network)
    if not pairs:
        raise ModelError(
            f"model.weights {config.weights} does not fit {_describe(config)}: "
            f"{_explain(stored, network, config)}."
        )
    for variable, array in pairs:
        variable.assign(array)


def _pair(stored: Stored, network: tf_keras.Model) -> _Pairs:
    """Return each variable with its array; nothing if the file is of another network."""
    for pairs in _pairings(stored, network):
        if pairs and all(tuple(variable.shape) == array.shape for variable, array in pairs):
            return pairs
    return []


def _pairings(stored: Stored, network: tf_keras.Model) -> Iterator[_Pairs]:
    """Yield the ways in which the layers of a file may be those of the network.

    Files of Keras 2, and ours, have them in order. Its third format names them by their class and
    number, and newer releases of Keras by their own names.
    """
    if stored.in_order:
        yield _zip([layer.weights for layer in saved_layers(network)], [*stored.layers.values()])
        return
    for named in (dict(_by_class(network)), dict(_by_name(network))):
        if named.keys() <= stored.layers.keys():
            more = len(stored.layers) - len(named)
            arrays = [stored.layers[name] for name in named]
            yield _zip([*named.values()], arrays) if more <= _MOST_TOP_LAYERS else []


def _zip(ours: list[list[Any]], theirs: list[list[Array]]) -> _Pairs:
    """Pair weights layer by layer; the file may have a few layers more at its end."""
    if not 0 <= len(theirs) - len(ours) <= _MOST_TOP_LAYERS:
        return []
    layers = list(zip(ours, theirs, strict=False))
    if any(len(variables) != len(arrays) for variables, arrays in layers):
        return []
    return [pair for layer in layers for pair in zip(*layer, strict=True)]


def _by_class(model: tf_keras.Model, prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    numbers: dict[str, int] = {}
    for layer in model.layers:
        kind = _snake_case(type(layer).__name__)
        number = numbers[kind] = numbers.get(kind, -1) + 1
        name = f"{prefix}{kind}_{number}" if number else f"{prefix}{kind}"
        if isinstance(layer, tf_keras.Model):
            yield from _by_class(layer, f"{name}/")
        elif layer.weights and not isinstance(layer, Dropout):
            yield name, layer.weights


def _by_name(model: tf_keras.Model, prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    for layer in model.layers:
        if isinstance(layer, tf_keras.Model):
            yield from _by_name(layer, f"{prefix}{layer.name}/")
        elif layer.weights and not isinstance(layer, Dropout):
            yield f"{prefix}{layer.name}", layer.weights


def _snake_case(name: str) -> str:
    """Turn `Conv2D` into `conv2d` and `BatchNormalization` into `batch_normalization`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])", "_", name).lower()


def _describe(config: ModelConfig) -> str:
    return f"model.build_fn {config.build_fn}" if config.build_fn else f"model.name {config.name}"


def _explain(stored: Stored, network: tf_keras.Model, config: ModelConfig) -> str:
    """Say whose weights they are, or else where they differ first; a clause."""
    fitting = stored.network or find_fitting(stored)
    if fitting and fitting != (config.build_fn or config.name).rpartition(".")[2]:
        setting = "model.name" if fitting in (*OWN_NETWORKS, *APPLICATIONS) else "model.build_fn"
        return f"its weights are those of {fitting}; set {setting} to that, or name another file"
    ours = [
        (layer.name, [tuple(v.shape) for v in layer.weights]) for layer in saved_layers(network)
    ]
    theirs = [(name, [array.shape for array in of]) for name, of in stored.layers.items()]
    if stored.in_order:
        for (name, shapes), (_, found) in zip(ours, theirs, strict=False):
            if shapes != found:
                hint = "; model.width must be the same" if config.name in OWN_NETWORKS else ""
                return f"{name} has weights of shapes {shapes}, and there they are {found}{hint}"
    return (
        f"it has {len(theirs)} layers with weights, and the network {len(ours)}; it seems to be "
        f"none of the networks that model.name knows"
    )


def find_fitting(stored: Stored) -> str:
    """Return the backbone of `keras.applications` that a file of weights belongs to, or ""."""
    layers = [of for name, of in stored.layers.items() if name != _STANDARDIZATION]
    arrays = sum(len(layer) for layer in layers)
    parameters = sum(array.size for layer in layers for array in layer)
    for name, application in APPLICATIONS.items():
        more = parameters - application.parameters
        classes, rest = divmod(more, application.features + 1)
        # As it is, or with one layer of any number of classes on top of it.
        if (arrays == application.arrays and not more) or (
            arrays == application.arrays + 2 and classes > 0 and not rest
        ):
            return name
    return ""
