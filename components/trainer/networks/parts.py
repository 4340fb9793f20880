"""A model's two parts, backbone and head, and which of their layers are trained."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import tensorflow as tf
import tf_keras
from tf_keras import layers

from components.contract.errors import ConfigurationError
from components.trainer.networks.layers import Dropout
from components.trainer.networks.weights_file import NETWORK

_BACKBONE, _HEAD = "backbone", "head"
# HDF5 limits an attribute to 64 KiB.
_NAMES_PER_ATTRIBUTE = 500

# Names of the layers of a block share this: `block_3_expand` and `expanded_conv_project` of
# MobileNet, `block2b_dwconv2` and `top_conv` of EfficientNet, `conv4_block6_1_conv` and
# `pool3_conv` of ResNet and DenseNet, `stage_2_block_8_layernorm` and `downsampling_block_1` of
# ConvNeXt.
_BLOCK = re.compile(
    r"stage_\d+_block_\d+|downsampling_block_\d+|conv\d+_block\d+|pool\d+"
    r"|expanded_conv(?:_\d+)?|block_?\d+[a-z]?|\btop(?=_)"
)


@dataclass(frozen=True)
class Parts:
    """A model in two parts, which share their layers with it."""

    backbone: tf_keras.Model
    """From uint8 images [batch, size, size, 3] to float32 features [batch, d]."""
    head: tf_keras.Model
    """From features [batch, d] to float32 logits [batch, classes]: dropout and the last layer."""

    @classmethod
    def of(cls, model: tf_keras.Model) -> Self:
        """Find the parts of a model that `build_model` has built.

        Raises:
            ConfigurationError: the model cannot be divided.
        """
        if not _is_divided(model):
            raise ConfigurationError(
                "The network of model.build_fn cannot be divided into features and a last Dense "
                "layer, because it does not end in a chain of Keras layers: leave model.weights at "
                "none to train it as a whole."
            )
        return cls(model.get_layer(_BACKBONE), model.get_layer(_HEAD))

    @property
    def blocks(self) -> list[list[Any]]:
        """Layers of the backbone, in order, grouped by block; the first block is the stem.

        Layer names determine the block. Any other layer with a kernel begins a block. A block
        without a kernel, such as a last normalization, is merged into the one before it, as there
        is no point in training it alone.
        """
        blocks: dict[str, list[Any]] = {}
        current = ""
        for layer in _leaves(self.backbone):
            if found := _BLOCK.search(layer.name):
                current = found[0]
            elif _has_kernel(layer):
                current = layer.name
            blocks.setdefault(current, []).append(layer)
        return _merge_without_kernel(blocks.values())


def join(images: Any, backbone: tf_keras.Model, head: tf_keras.Model, name: str) -> tf_keras.Model:
    """Build a model from the Keras tensor `images` and two parts, which `Parts.of` finds again."""
    return tf_keras.Model(images, head(backbone(images)), name=name)


def make_backbone(inputs: Any, features: Any) -> tf_keras.Model:
    """Build a backbone from Keras tensors; its features are float32 in mixed precision, too."""
    features = layers.Activation("linear", dtype="float32", name="features")(features)
    return tf_keras.Model(inputs, features, name=_BACKBONE)


def make_head(features: Any, logits: Any) -> tf_keras.Model:
    """Build a head from Keras tensors."""
    return tf_keras.Model(features, logits, name=_HEAD)


def freeze(model: tf_keras.Model, *, unfreeze: int | Literal["all", "none"]) -> None:
    """Choose the layers to train with the head; others neither learn nor update their statistics.

    Batch normalization is never trained: statistics from a few batches would replace those of the
    much larger pretraining set. It runs in inference mode even in training.

    Args:
        model: built by `build_model`.
        unfreeze: number of last blocks of the backbone to train, all or none.

    Raises:
        ConfigurationError: the network cannot be divided, or has fewer blocks.
    """
    parts = Parts.of(model)
    blocks = parts.blocks
    number = {"all": len(blocks), "none": 0}[unfreeze] if isinstance(unfreeze, str) else unfreeze
    if number > len(blocks):
        raise ConfigurationError(
            f"transfer.unfreeze is {unfreeze}, but {model.name} has only {len(blocks)} blocks; "
            "use `all` for every block."
        )
    unfreeze_everything(model)
    for block in blocks[: len(blocks) - number]:
        for layer in block:
            layer.trainable = False
    for layer in parts.backbone.submodules:
        if isinstance(layer, layers.BatchNormalization):
            layer.trainable = False


def unfreeze_everything(model: tf_keras.Model) -> None:
    """Let all layers learn, as in a training from random weights."""
    # Keras sets it for all inner layers, too.
    model.trainable = True


def save_backbone(model: tf_keras.Model, path: str) -> bool:
    """Write the weights of the backbone, from which `model.weights` starts other trainings.

    They include mean and variance of the pixels. A network that cannot be divided has no backbone:
    return False.
    """
    if not _is_divided(model):
        return False
    with _unfrozen(model), tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, "backbone.weights.h5")
        arrays: dict[str, Any] = {}
        for layer in weighted_layers(model.get_layer(_BACKBONE)):
            # Models within a model may have layers of the same name.
            name = layer.name if layer.name not in arrays else f"{layer.name}_{len(arrays)}"
            arrays[name] = layer.get_weights()
        write_weights(local, arrays, network=model.name)
        tf.io.gfile.copy(local, path, overwrite=True)
    return True


def weighted_layers(model: tf_keras.Model) -> list[Any]:
    """Return the layers with weights, in order, without the call counters of dropout."""
    return [layer for layer in _leaves(model) if layer.weights and not isinstance(layer, Dropout)]


def _is_divided(model: tf_keras.Model) -> bool:
    return {_BACKBONE, _HEAD} <= {layer.name for layer in model.layers}


@contextlib.contextmanager
def _unfrozen(model: tf_keras.Model) -> Iterator[None]:
    """Unfreeze everything within the block: frozen weights change Keras's order in a layer."""
    frozen = [layer for layer in model.submodules if not getattr(layer, "trainable", True)]
    unfreeze_everything(model)
    yield
    for layer in frozen:
        layer.trainable = False


def _leaves(model: tf_keras.Model) -> Iterator[Any]:
    """Yield the layers of a functional model and of functional models within it.

    Any other inner model counts as one layer, as in files of Keras 2.
    """
    for layer in model.layers:
        if type(layer).__name__ == "Functional":
            yield from _leaves(layer)
        else:
            yield layer


def _has_kernel(layer: Any) -> bool:
    return any(len(weight.shape) >= 2 for weight in layer.weights)


def _merge_without_kernel(blocks: Iterable[list[Any]]) -> list[list[Any]]:
    """Merge each block without a kernel into the one before, at the beginning into the next."""
    merged: list[list[Any]] = []
    for block in blocks:
        if not merged or (any(map(_has_kernel, block)) and any(map(_has_kernel, merged[-1]))):
            merged.append(block)
        else:
            merged[-1] = [*merged[-1], *block]
    return merged


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
