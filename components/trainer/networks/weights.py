"""Loads the weights of a file into a network, and saves those of its backbone."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from components.contract.errors import ModelError
from components.contract.rules_of_thumb import OWN_NETWORKS
from components.trainer.config.model import APPLICATIONS, ModelConfig
from components.trainer.networks.layers import Dropout
from components.trainer.networks.parts import Parts, is_divided, leaves, unfreeze_everything
from components.trainer.networks.weights_file import NETWORK, StoredWeights, read_weights

if TYPE_CHECKING:
    from components.trainer.networks.weights_file import Array

_STANDARDIZATION = "standardization"
# The last layer of classes and, in MobileNetV3, the one before it.
_MAX_TOP_LAYERS = 2
# HDF5 limits an attribute to 64 KiB.
_NAMES_PER_ATTRIBUTE = 500

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
        ours = [layer.weights for layer in _weighted_layers(network)]
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
    ours = _weighted_layers(network)
    if stored.in_order:
        for layer, (_, arrays) in zip(ours, stored.layers.items(), strict=False):
            shapes, found = [tuple(v.shape) for v in layer.weights], [a.shape for a in arrays]
            if shapes != found:
                hint = "; model.width must be the same" if config.name in OWN_NETWORKS else ""
                return f"{layer.name} has weights of shapes {shapes}, the file has {found}{hint}"
    return f"it has {len(stored.layers)} layers with weights, the network has {len(ours)}"


def save_backbone(model: tf_keras.Model, path: str) -> bool:
    """Write the weights of the backbone, from which `model.weights` starts other trainings.

    They include mean and variance of the pixels. A network that cannot be divided has no backbone:
    return False.
    """
    if not is_divided(model):
        return False
    with _unfrozen(model), tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, "backbone.weights.h5")
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


@contextlib.contextmanager
def _unfrozen(model: tf_keras.Model) -> Iterator[None]:
    """Unfreeze everything within the block: frozen weights change Keras's order in a layer."""
    frozen = [layer for layer in model.submodules if not getattr(layer, "trainable", True)]
    unfreeze_everything(model)
    yield
    for layer in frozen:
        layer.trainable = False


def write_weights(path: str, layers: Mapping[str, Sequence[Any]], *, network: str) -> None:
    """Write the weights of each layer by name, in the format of Keras 2, which keeps their order.

    `network` is `model.name`, or another name of the network.
    """
    import h5py  # type: ignore[import-untyped]

    with h5py.File(path, "w") as file:
        file.attrs[NETWORK] = network
        file.attrs.update({"backend": "tensorflow", "keras_version": "2.16.0"})
        _write_names(file, "layer_names", list(layers))
        for layer, arrays in layers.items():
            names = [str(number) for number in range(len(arrays))]
            group = file.require_group(layer)
            _write_names(group, "weight_names", names)
            for name, array in zip(names, arrays, strict=True):
                group.create_dataset(name, data=array)


def _write_names(group: Any, attribute: str, names: list[str]) -> None:
    """Write a list of names as Keras does: split into several attributes if it is long."""
    size = _NAMES_PER_ATTRIBUTE
    parts = [names[start : start + size] for start in range(0, len(names), size)]
    for number, part in enumerate(parts):
        name = f"{attribute}{number}" if len(parts) > 1 else attribute
        group.attrs[name] = [name.encode() for name in part]
