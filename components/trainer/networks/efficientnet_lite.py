"""EfficientNet-Lite: EfficientNet without squeeze-and-excitation and with ReLU6, for any hardware.

https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite. The stem, the last
convolution, and the depth of the first and the last stage are the same in all of them.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras
from tf_keras import layers

from components.images.options import CHANNELS


class _Stage(NamedTuple):
    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)
# Network → factors of the channels and of the blocks.
_SCALES = {
    "efficientnet_lite0": (1.0, 1.0),
    "efficientnet_lite1": (1.0, 1.1),
    "efficientnet_lite2": (1.1, 1.2),
}
_STEM, _TOP = 32, 1280
_LAYER = re.compile(r"(?:block_(\d+)_)?([a-z]+)_(conv|norm)")
_NORMS = {"stem": "_bn0", "top": "_bn1", "expand": "_bn0", "depthwise": "_bn1", "project": "_bn2"}
_CONVOLUTIONS = {"stem": "_conv_stem", "top": "_conv_head"}


def build_efficientnet_lite(name: str, size: int | None) -> tf_keras.Model:
    """Build the network without its layer of classes: scaled pixels in, [batch, 1280] out.

    It is for images of one size, or of any, which differs in nothing but the speed.
    """
    width, depth = _SCALES[name]
    images = layers.Input([size, size, CHANNELS])
    features = _convolve(images, _STEM, "stem", kernel=3, stride=2)
    number = 0
    for stage in _STAGES:
        fixed = stage in (_STAGES[0], _STAGES[-1])
        channels = _round(stage.channels * width)
        for repeat in range(stage.blocks if fixed else math.ceil(stage.blocks * depth)):
            block = stage._replace(stride=1 if repeat else stage.stride, channels=channels)
            features = _add_block(features, f"block_{number}", block)
            number += 1
    features = _convolve(features, _TOP, "top", kernel=1)
    return tf_keras.Model(images, layers.GlobalAveragePooling2D()(features), name=name)


def assign_tensors(network: tf_keras.Model, tensors: Mapping[str, Any]) -> None:
    """Assign PyTorch's tensors, name → array, to the layers of the network.

    Raises:
        KeyError, ValueError: the tensors are those of another network.
    """
    for layer in network.layers:
        if layer.weights:
            layer.set_weights([*_find_tensors(layer, tensors)])


def _find_tensors(layer: Any, tensors: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the weights of a layer, in Keras's order."""
    match = _LAYER.fullmatch(layer.name)
    assert match, layer.name
    block, part, kind = match.groups()
    prefix = f"_blocks.{block}." if block else ""
    if kind == "norm":
        for weight in ("weight", "bias", "running_mean", "running_var"):
            yield tensors[f"{prefix}{_NORMS[part]}.{weight}"]
    else:
        # PyTorch has [outputs, inputs, height, width]; depthwise, one input for each output.
        axes = (2, 3, 0, 1) if part == "depthwise" else (2, 3, 1, 0)
        name = f"{prefix}{_CONVOLUTIONS.get(part, f'_{part}_conv')}"
        yield tensors[f"{name}.weight"].transpose(axes)


def _round(channels: float) -> int:
    """Round to a multiple of 8, but not down by more than a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


def _add_block(features: Any, name: str, block: _Stage) -> Any:
    shortcut, channels = features, features.shape[-1]
    if block.expansion > 1:
        features = _convolve(features, channels * block.expansion, f"{name}_expand", kernel=1)
    features = layers.DepthwiseConv2D(
        block.kernel, block.stride, "same", use_bias=False, name=f"{name}_depthwise_conv"
    )(features)
    features = _normalize(features, f"{name}_depthwise")
    features = layers.ReLU(6.0, name=f"{name}_depthwise_relu")(features)
    features = _convolve(features, block.channels, f"{name}_project", kernel=1, relu=False)
    if block.stride == 1 and block.channels == channels:
        features = layers.Add(name=f"{name}_add")([shortcut, features])
    return features


def _convolve(
    features: Any, channels: int, name: str, *, kernel: int, stride: int = 1, relu: bool = True
) -> Any:
    features = layers.Conv2D(channels, kernel, stride, "same", use_bias=False, name=f"{name}_conv")(
        features
    )
    features = _normalize(features, name)
    return layers.ReLU(6.0, name=f"{name}_relu")(features) if relu else features


def _normalize(features: Any, name: str) -> Any:
    return _Normalization(epsilon=1e-3, name=f"{name}_norm")(features)


class _Normalization(layers.BatchNormalization):
    """Batch normalization that takes a third of the time on a CPU where it is frozen.

    Keras's gradient always includes those of its own weights, which nothing uses.
    """

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        # Mixed precision keeps its weights in float32; rounding them would add half the error.
        if not training or self.trainable or inputs.dtype != tf.float32:
            return super().call(inputs, training=training)
        scale = self.gamma * tf.math.rsqrt(self.moving_variance + self.epsilon)
        return inputs * scale + (self.beta - self.moving_mean * scale)
