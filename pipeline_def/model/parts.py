"""A model's two parts, backbone and head, and which of their layers are trained."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf
import tf_keras
from tf_keras import layers

from components.contract.errors import ConfigurationError
from pipeline_def.model.layers import Dropout
from pipeline_def.model.weights_file import write_weights

_BACKBONE, _HEAD = "backbone", "head"

# What the layers of a block have in common in their names: `block_3_expand` and
# `expanded_conv_project` of MobileNet, `block2b_dwconv2` and `top_conv` of EfficientNet,
# `conv4_block6_1_conv` and `pool3_conv` of ResNet and DenseNet, `stage_2_block_8_layernorm` and
# `downsampling_block_1` of ConvNeXt.
_BLOCK = re.compile(
    r"stage_\d+_block_\d+|downsampling_block_\d+|conv\d+_block\d+|pool\d+"
    r"|expanded_conv(?:_\d+)?|block_?\d+[a-z]?|\btop(?=_)"
)


@dataclass(frozen=True)
class Parts:
    """A model in two parts, which share their layers with it."""

    backbone: tf_keras.Model
    """uint8 images [batch, size, size, 3] → float32 features [batch, d]."""
    head: tf_keras.Model
    """Features [batch, d] → float32 logits [batch, classes]: dropout and the last layer."""

    @classmethod
    def of(cls, model: tf_keras.Model) -> Parts:
        """Find the parts of a model that `build_model` has built.

        Raises:
            ConfigurationError: it cannot be divided.
        """
        if not is_divided(model):
            raise ConfigurationError(
                "The network of model.build_fn cannot be divided into features and a last Dense "
                "layer, as it is no chain of Keras layers at its end: leave model.weights at none, "
                "so that it is trained as a whole."
            )
        return cls(model.get_layer(_BACKBONE), model.get_layer(_HEAD))

    @property
    def blocks(self) -> list[list[Any]]:
        """Layers of the backbone, in order, grouped by block; the first group is the stem.

        The names of the layers say which block they belong to. Among the others, one with a kernel
        begins a block of its own. A block without any kernel, such as a last normalisation, counts
        as part of the one before it: to train nothing else would be no use.
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
    """Build a model from Keras tensor `images` and two parts, which `Parts.of` finds again."""
    return tf_keras.Model(images, head(backbone(images)), name=name)


def make_backbone(inputs: Any, features: Any) -> tf_keras.Model:
    """Build a backbone from Keras tensors; its features are float32 whatever it computes in."""
    features = layers.Activation("linear", dtype="float32", name="features")(features)
    return tf_keras.Model(inputs, features, name=_BACKBONE)


def make_head(features: Any, logits: Any) -> tf_keras.Model:
    """Build a head from Keras tensors."""
    return tf_keras.Model(features, logits, name=_HEAD)


def is_divided(model: tf_keras.Model) -> bool:
    """Say whether a model has a backbone and a head."""
    return {_BACKBONE, _HEAD} <= {layer.name for layer in model.layers}


def freeze(
    model: tf_keras.Model, *, unfreeze: int | Literal["all", "none"], train_batch_norm: bool
) -> None:
    """Choose what is trained beside the head; the rest neither learns nor moves its statistics.

    Batch normalisation that is not trained runs in inference mode even in training.

    Args:
        model: as `build_model` has built it.
        unfreeze: all blocks of the backbone, the last so many, or none.
        train_batch_norm: train the batch normalisation of these blocks too.

    Raises:
        ConfigurationError: the network cannot be divided, or has fewer blocks.
    """
    parts = Parts.of(model)
    blocks = parts.blocks
    number = {"all": len(blocks), "none": 0}[unfreeze] if isinstance(unfreeze, str) else unfreeze
    if number > len(blocks):
        raise ConfigurationError(
            f"transfer.unfreeze is {unfreeze}: {model.name} has only {len(blocks)} blocks; all "
            f"means every one."
        )
    unfreeze_everything(model)
    for block in blocks[: len(blocks) - number]:
        for layer in block:
            layer.trainable = False
    if not train_batch_norm:
        for layer in parts.backbone.submodules:
            if isinstance(layer, layers.BatchNormalization):
                layer.trainable = False


def unfreeze_everything(model: tf_keras.Model) -> None:
    """Let all layers learn, as in a training from random weights."""
    # Keras sets it for all layers within, too.
    model.trainable = True


def save_backbone(model: tf_keras.Model, path: str) -> bool:
    """Write the weights of the backbone for `model.weights` of other trainings.

    With them go mean and variance of the pixels that it was trained with.

    Args:
        model: as `build_model` has built it.
        path: of a file whose name ends in .weights.h5; a path or URL that TensorFlow writes.

    Returns:
        Whether there is such a file; a network that cannot be divided has no backbone.
    """
    if not is_divided(model):
        return False
    with _unfrozen(model), tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, "backbone.weights.h5")
        arrays: dict[str, Any] = {}
        for layer in saved_layers(model.get_layer(_BACKBONE)):
            # Two models within a model may have layers of the same name.
            name = layer.name if layer.name not in arrays else f"{layer.name}_{len(arrays)}"
            arrays[name] = layer.get_weights()
        write_weights(local, arrays, network=model.name)
        tf.io.gfile.copy(local, path, overwrite=True)
    return True


def saved_layers(model: tf_keras.Model) -> list[Any]:
    """Return the layers whose weights go into a file, in order; not how often dropout was run."""
    return [layer for layer in _leaves(model) if layer.weights and not isinstance(layer, Dropout)]


@contextlib.contextmanager
def _unfrozen(model: tf_keras.Model) -> Iterator[None]:
    """Unfreeze everything for a while: Keras sorts the weights of a layer by what is frozen."""
    frozen = [layer for layer in model.submodules if not getattr(layer, "trainable", True)]
    unfreeze_everything(model)
    yield
    for layer in frozen:
        layer.trainable = False


def _leaves(model: tf_keras.Model) -> Iterator[Any]:
    """Yield the layers of a functional model and of those within it.

    Any other model within it is one layer, as in files of Keras 2.
    """
    for layer in model.layers:
        if type(layer).__name__ == "Functional":
            yield from _leaves(layer)
        else:
            yield layer


def _has_kernel(layer: Any) -> bool:
    return any(len(weight.shape) >= 2 for weight in layer.weights)


def _merge_without_kernel(blocks: Iterable[list[Any]]) -> list[list[Any]]:
    """Join the blocks without a kernel to the one before; at the beginning, to the one behind."""
    merged: list[list[Any]] = []
    for block in blocks:
        if not merged or (any(map(_has_kernel, block)) and any(map(_has_kernel, merged[-1]))):
            merged.append(block)
        else:
            merged[-1] = [*merged[-1], *block]
    return merged
