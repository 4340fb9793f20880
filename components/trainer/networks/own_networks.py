"""Networks of this repository for small images: float32 pixels in, features out."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from tf_keras import activations, initializers, layers

from components.images.options import CHANNELS
from components.trainer.networks.layers import Whitening

BATCH_NORM_MOMENTUM = 0.9
"""Keras's MobileNetV2 averages over a thousand steps: a short training from random weights would be
evaluated with the statistics of its first steps."""


def build_cnn(size: int, width: int) -> tf_keras.Model:
    """Build four convolutions, each at half the resolution of the one before.

    The first one has `width` channels, the last one four times as many.
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
            features = _pool(features, f"{name}_pool")
    return tf_keras.Model(images, layers.GlobalAveragePooling2D()(features), name="cnn")


def build_resnet9(size: int, width: int, covariance: Sequence[Sequence[float]]) -> tf_keras.Model:
    """Build the residual network of nine layers by Page (2018), made as fast as Jordan's (2024).

    https://myrtle.ai/learn/how-to-train-your-resnet and https://arxiv.org/abs/2404.00498: patches
    are whitened, and convolutions start as identities. Its head has no bias and divides logits by
    nine. The first stage has `width` channels, the others four times as many. `covariance`, [12,
    12], is that of patches of two by two standardized pixels.
    """
    images = layers.Input([size, size, CHANNELS])
    features = layers.Activation(_gelu, name="stem_gelu")(Whitening(covariance)(images))
    for stage, (channels, convolutions) in enumerate([(1, 1), (4, 1), (4, 2)], start=1):
        features = _add_stage(features, width * channels, convolutions, f"block_{stage}")
    return tf_keras.Model(images, layers.GlobalMaxPooling2D()(features), name="resnet9")


def _add_stage(features: Any, channels: int, convolutions: int, name: str) -> Any:
    """Halve the resolution, then add a residual branch."""
    shortcut = features = _convolve(features, channels, f"{name}_entry", pool=True)
    for number in range(1, convolutions + 1):
        features = _convolve(features, channels, f"{name}_residual_{number}")
    return layers.Add(name=f"{name}_add")([shortcut, features])


def _convolve(features: Any, channels: int, name: str, *, pool: bool = False) -> Any:
    features = layers.Conv2D(
        channels,
        3,
        padding="same",
        use_bias=False,
        kernel_initializer=_identity,
        name=f"{name}_conv",
    )(features)
    if pool:
        features = _pool(features, f"{name}_pool")
    features = layers.BatchNormalization(
        momentum=BATCH_NORM_MOMENTUM, epsilon=1e-5, name=f"{name}_norm"
    )(features)
    return layers.Activation(_gelu, name=f"{name}_gelu")(features)


def _identity(shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
    """Initialize a convolution to copy its input; additional channels are random."""
    *_, inputs, outputs = shape
    random = initializers.GlorotUniform()(shape, dtype)
    center = tf.reshape(tf.one_hot(4, 9, dtype=random.dtype), [3, 3, 1, 1])
    same = center * tf.eye(inputs, outputs, dtype=random.dtype)
    return tf.where(tf.range(outputs) < inputs, same, random)


def _gelu(features: Any) -> Any:
    """Approximate by tanh, as GPUs do."""
    return activations.gelu(features, approximate=True)


def _pool(features: Any, name: str) -> Any:
    """Take the maximum of two by two values, unless only one pixel is left."""
    return layers.MaxPooling2D(name=name)(features) if features.shape[1] > 1 else features
