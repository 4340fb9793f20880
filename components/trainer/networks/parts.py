"""A model's two parts, backbone and head: which layers are trained, and the backbone's weights."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import tf_keras
from tf_keras import layers

from components.contract.errors import ConfigurationError, ModelError
from components.contract.rules_of_thumb import OWN_NETWORKS
from components.trainer.config.model import ModelConfig
from components.trainer.networks.layers import Dropout
from components.trainer.networks.weights_file import read_weights, write_weights

_BACKBONE, _HEAD = "backbone", "head"

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
        """Find the parts of a model that `build_model` has built; not of the user's network."""
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
        for layer in leaves(self.backbone):
            if match := _BLOCK.search(layer.name):
                current = match[0]
            elif _has_kernel(layer):
                current = layer.name
            blocks.setdefault(current, []).append(layer)
        return _merge_without_kernel(blocks.values())


def make_backbone(inputs: Any, features: Any) -> tf_keras.Model:
    """Build a backbone from Keras tensors; its features are float32 in mixed precision, too."""
    features = layers.Activation("linear", dtype="float32", name="features")(features)
    return tf_keras.Model(inputs, features, name=_BACKBONE)


def make_head(features: Any, logits: Any) -> tf_keras.Model:
    """Build a head from Keras tensors."""
    return tf_keras.Model(features, logits, name=_HEAD)


def divide(model: tf_keras.Model, *, blocks: int) -> tuple[tf_keras.Model, tf_keras.Model] | None:
    """Divide a model before its last blocks, into two models that share its layers.

    Returns:
        From uint8 images to float32 activations, and from these to logits; None if the blocks take
        more than the output of one layer, or if there are no others.
    """
    parts = Parts.of(model)
    blocks_before = parts.blocks[: len(parts.blocks) - blocks]
    inner = [layer for layer in parts.backbone.layers if isinstance(layer, tf_keras.Model)]
    if not blocks_before or len(inner) != 1:
        return None
    [network] = inner
    names, cut = {layer.name for layer in network.layers}, blocks_before[-1][-1]
    if cut.name not in names:
        return None
    # The last one: a network that `clone_model` copied shares layers with the original.
    activations = cut.get_output_at(-1)
    try:
        below, above = (
            tf_keras.Model(network.input, activations),
            tf_keras.Model(activations, network.output),
        )
    except ValueError:  # A later layer takes something else, too.
        return None
    images = layers.Input(parts.backbone.input_shape[1:], dtype="uint8")
    values, position = images, parts.backbone.layers.index(network)
    for layer in parts.backbone.layers[1:position]:
        values = layer(values)
    values = layers.Activation("linear", dtype="float32")(below(values))
    inputs = layers.Input(values.shape[1:], dtype="float32")
    features = above(inputs)
    for layer in parts.backbone.layers[position + 1 :]:
        features = layer(features)
    frozen = tf_keras.Model(images, values, name=f"before_{blocks}_blocks")
    return frozen, tf_keras.Model(inputs, parts.head(features), name=f"last_{blocks}_blocks")


def count_unfrozen(model: tf_keras.Model, unfreeze: int | Literal["top", "all", "none"]) -> int:
    """Return how many last blocks of the backbone `transfer.unfreeze` stands for."""
    if isinstance(unfreeze, int):
        return unfreeze
    number = len(Parts.of(model).blocks)
    return {"all": number, "top": max(1, number // 2), "none": 0}[unfreeze]


def freeze(model: tf_keras.Model, *, unfreeze: int | Literal["top", "all", "none"]) -> None:
    """Choose the layers to train with the head; others neither learn nor update their statistics.

    Batch normalization is never trained: statistics from a few batches would replace those of the
    much larger pretraining set. It runs in inference mode even in training. Depthwise filters are
    trained with all blocks only: of efficientnet_lite0 they are a twentieth of the weights and take
    a quarter of a step on a CPU. Without them CIFAR-10 came out within chance: with 500 images 0.3
    points better in one comparison and 0.9 worse in another, three draws each, with 3,000 images
    0.5 better. `unfreeze` is the number of last blocks of the backbone to train, top (half of
    them), all or none.

    Raises:
        ConfigurationError: the network has fewer blocks.
    """
    parts = Parts.of(model)
    blocks = parts.blocks
    number = count_unfrozen(model, unfreeze)
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
        fixed = isinstance(layer, layers.DepthwiseConv2D) and unfreeze != "all"
        if fixed or isinstance(layer, layers.BatchNormalization):
            layer.trainable = False


def unfreeze_everything(model: tf_keras.Model) -> None:
    """Let all layers learn, as in a training from random weights."""
    # Keras sets it for all inner layers, too.
    model.trainable = True


def leaves(model: tf_keras.Model) -> Iterator[Any]:
    """Yield the layers of a functional model and of functional models within it.

    Any other inner model counts as one layer, as in files of Keras 2.
    """
    for layer in model.layers:
        if type(layer).__name__ == "Functional":
            yield from leaves(layer)
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


def load_weights(model: tf_keras.Model, config: ModelConfig) -> None:
    """Load the file of `model.weights`, by `save_backbone`, into the backbone of a model.

    Raises:
        ModelError: the file does not exist, or does not fit the network.
    """
    stored = read_weights(config.weights)
    ours, theirs = _weighted_layers(Parts.of(model).backbone), [*stored.layers.values()]
    shapes = [[tuple(variable.shape) for variable in layer.weights] for layer in ours]
    if shapes != [[array.shape for array in arrays] for arrays in theirs]:
        reason = (
            f"it contains weights of {stored.network}; set model.name to that"
            if stored.network != config.name
            else "its layers have other shapes"
            + ("; model.width must be the same" if config.name in OWN_NETWORKS else "")
        )
        raise ModelError(
            f"model.weights {config.weights} does not fit model.name {config.name}: {reason}."
        )
    for layer, arrays in zip(ours, theirs, strict=True):
        for variable, array in zip(layer.weights, arrays, strict=True):
            variable.assign(array)


def save_backbone(model: tf_keras.Model, path: str) -> bool:
    """Write the weights of the backbone, from which `model.weights` starts other trainings.

    They include mean and variance of the pixels. A network of the user has no backbone: return
    False. Nothing may be frozen, which changes Keras's order in a layer.
    """
    if not {_BACKBONE, _HEAD} <= {layer.name for layer in model.layers}:
        return False
    arrays: dict[str, Any] = {}
    for layer in _weighted_layers(Parts.of(model).backbone):
        # Models within a model may have layers of the same name.
        name = layer.name if layer.name not in arrays else f"{layer.name}_{len(arrays)}"
        arrays[name] = layer.get_weights()
    write_weights(path, arrays, network=model.name)
    return True


def _weighted_layers(model: tf_keras.Model) -> list[Any]:
    """Return the layers with weights, in order, without the call counters of dropout."""
    return [layer for layer in leaves(model) if layer.weights and not isinstance(layer, Dropout)]
