"""Networks of this repository, for small images: float32 pixels in, features out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from tf_keras import activations, initializers, layers

from components.images.canonical import CHANNELS
from pipeline_def.model.layers import Whitening

BATCH_NORM_MOMENTUM = 0.9
"""Keras's MobileNetV2 averages over a thousand steps; a short training from scratch would be
evaluated with statistics that still are those of its first steps."""


def build_cnn(size: int, width: int) -> tf_keras.Model:
    """Build four convolutions, each at half the resolution of the one before.

    Args:
        size: side of the images, pixels.
        width: channels of the first one; the last one has four times as many.
    """
    features = images = layers.Input([size, size, CHANNELS])
    for block, channels in enumerate((width, width * 2, width * 2, width * 4), start=1):
        name = f"block_{block}"
        features = layers.Conv2D(channels, 3, padding="same", use_bias=False, name=f"{name}_conv")(
            features
        )
        features = layers.BatchNormalization(momentum=BATCH_NORM_MOMENTUM, name=f"{name}_norm")(
            features
        )
        features = layers.ReLU(name=f"{name}_relu")(features)
        if block < 4:
            features = _halved(features, f"{name}_pool")
    return tf_keras.Model(images, layers.GlobalAveragePooling2D()(features), name="cnn")


def build_resnet9(size: int, width: int, covariance: Sequence[Sequence[float]]) -> tf_keras.Model:
    """Build the residual network of nine layers by Page (2018), as fast as Jordan's (2024).

    https://myrtle.ai/learn/how-to-train-your-resnet and https://arxiv.org/abs/2404.00498: patches
    are whitened, and convolutions begin as identities. The head belongs to it: logits without bias,
    divided by nine.

    Args:
        size: side of the images, pixels.
        width: channels of the first stage; the other two have four times as many.
        covariance: of patches of two by two standardized pixels, [12, 12].
    """
    images = layers.Input([size, size, CHANNELS])
    features = layers.Activation(_gelu, name="stem_gelu")(Whitening(covariance)(images))
    for stage, (channels, convolutions) in enumerate([(1, 1), (4, 1), (4, 2)], start=1):
        features = _stage(features, width * channels, convolutions, f"block_{stage}")
    return tf_keras.Model(images, layers.GlobalMaxPooling2D()(features), name="resnet9")


def _stage(features: Any, channels: int, convolutions: int, name: str) -> Any:
    """Halve the resolution, then add what some more convolutions make of it."""
    shortcut = features = _convolved(features, channels, f"{name}_entry", pool=True)
    for number in range(1, convolutions + 1):
        features = _convolved(features, channels, f"{name}_residual_{number}")
    return layers.Add(name=f"{name}_add")([shortcut, features])


def _convolved(features: Any, channels: int, name: str, *, pool: bool = False) -> Any:
    features = layers.Conv2D(
        channels,
        3,
        padding="same",
        use_bias=False,
        kernel_initializer=_identity,
        name=f"{name}_conv",
    )(features)
    if pool:
        features = _halved(features, f"{name}_pool")
    features = layers.BatchNormalization(
        momentum=BATCH_NORM_MOMENTUM, epsilon=1e-5, name=f"{name}_norm"
    )(features)
    return layers.Activation(_gelu, name=f"{name}_gelu")(features)


def _identity(shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
    """Let the first channels pass unchanged; more channels than come in are random."""
    *_, inputs, outputs = shape
    random = initializers.GlorotUniform()(shape, dtype)
    centre = tf.reshape(tf.one_hot(4, 9, dtype=random.dtype), [3, 3, 1, 1])
    same = centre * tf.eye(inputs, outputs, dtype=random.dtype)
    return tf.where(tf.range(outputs) < inputs, same, random)


def _gelu(features: Any) -> Any:
    """The approximation by tanh, as GPUs have it."""
    return activations.gelu(features, approximate=True)


def _halved(features: Any, name: str) -> Any:
    """Take the largest of each two by two values, unless there is only one pixel left."""
    return layers.MaxPooling2D(name=name)(features) if features.shape[1] > 1 else features
