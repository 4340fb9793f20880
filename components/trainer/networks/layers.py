"""Layers that Keras lacks or has in an unsuitable form, and the networks `cnn` and `resnet9`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras
from tf_keras import activations, initializers, layers

from components.images.options import CHANNELS
from components.trainer.config.model import Pixels

BATCH_NORM_MOMENTUM = 0.9
"""Keras's MobileNetV2 averages over a thousand steps: a short training from random weights would be
evaluated with the statistics of its first steps."""

# Added to the variances of patches of standardized pixels, as in Jordan's code.
_WHITENING_FLOOR = 5e-4


@dataclass(frozen=True)
class _Unseen:
    value: tf.Variable


class Dropout(layers.Layer):
    """Dropout that a resumed training continues exactly.

    Keras's dropout draws from a generator that no checkpoint stores. Like batch normalization, this
    layer does nothing while `trainable` is off: frozen features do not vary.
    """

    def __init__(
        self, rate: float, seed: int, *, name: str = "dropout", whole_images: bool = False
    ) -> None:
        """Drop the fraction `rate` of the values; layers with the same seed drop the same.

        With `whole_images`, drop all values of an image or none, which on one branch of a residual
        block is stochastic depth (Huang et al., 2016).
        """
        super().__init__(name=name, dtype=None if whole_images else "float32")
        self._rate, self._seed, self._whole_images = rate, seed, whole_images
        # Out of Keras's sight, as files of weights do not contain it.
        tuned = rate > 0 and not whole_images
        self._tuned = _Unseen(tf.Variable(rate, trainable=False)) if tuned else None
        self._calls = self.add_weight(
            "calls",
            dtype="int64",
            initializer="zeros",
            trainable=False,
            # Each replica counts by itself: loops and XLA do not allow an exchange.
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def set_rate(self, rate: float) -> None:
        """Drop another fraction, if it was above 0, in compiled steps too; not of whole images."""
        if self._tuned:
            self._tuned.value.assign(rate)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Drop values in training, and scale up the others."""
        if not training or not self.trainable:
            return inputs
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        call = self._calls.assign_add(1)
        seed = tf.stack([tf.constant(self._seed, tf.int64) + tf.cast(replica, tf.int64), call])
        shape = [tf.shape(inputs)[0], *[1] * (inputs.shape.rank - 1)]
        rate = tf.cast(self._tuned.value, inputs.dtype) if self._tuned else self._rate
        return tf.nn.experimental.stateless_dropout(
            inputs, rate, seed, noise_shape=shape if self._whole_images else None
        )


class Standardization(layers.Layer):
    """Scales pixels from 0 to 255 to the input of a network, always in float32.

    Mean and deviation are weights, so that a weights file contains the scaling of its network.
    """

    def __init__(self, pixels: Pixels) -> None:
        """Take the scaling of the pixels."""
        super().__init__(name="standardization", dtype="float32")
        self._reverse = pixels.reverse
        self._mean = self._constant("mean", pixels.mean)
        self._deviation = self._constant("deviation", pixels.deviation)

    def _constant(self, name: str, values: Sequence[float]) -> Any:
        initializer = initializers.Constant(list(values))
        return self.add_weight(name, [len(values)], initializer=initializer, trainable=False)

    def call(self, inputs: Any) -> Any:
        """Subtract the mean and divide by the deviation, which is 0 for constant channels."""
        # In bfloat16 a mean of 123.7 would become 123.5.
        pixels = tf.cast(inputs, tf.float32) - self._mean
        # Division takes 0.5 ms longer for 32 images of 32 pixels.
        pixels *= 1 / tf.maximum(self._deviation, 1e-7)
        return pixels[..., ::-1] if self._reverse else pixels


class Whitening(layers.Layer):
    """A convolution whose filters decorrelate patches of two by two pixels.

    The filters are the eigenvectors of the covariance of patches, each divided by the deviation
    along it, and their negatives, so that the activation after it loses no value. Only the offsets
    are trained. A network that begins with it needs half as many epochs (Jordan, 2024:
    https://arxiv.org/abs/2404.00498).
    """

    CHANNELS = 24
    """Output channels, twice the twelve values of a patch."""

    def __init__(self, covariance: Sequence[Sequence[float]]) -> None:
        """Take the covariance [12, 12] of patches, by row, column and channel."""
        super().__init__(name="whitening")
        filters = initializers.Constant(_whitening_filters(covariance).tolist())
        shape = [2, 2, 3, self.CHANNELS]
        self._filters = self.add_weight("filters", shape, initializer=filters, trainable=False)
        self._offsets = self.add_weight("offsets", [self.CHANNELS], initializer="zeros")

    def call(self, inputs: Any) -> Any:
        """Map images [batch, side, side, 3] to [batch, side - 1, side - 1, 24]."""
        return tf.nn.conv2d(inputs, self._filters, 1, "VALID") + self._offsets


def _whitening_filters(covariance: Sequence[Sequence[float]]) -> npt.NDArray[np.float64]:
    """Return filters [2, 2, 3, 24]."""
    values, vectors = np.linalg.eigh(np.asarray(covariance, np.float64))
    # Without a floor, directions in which patches hardly differ would amplify noise.
    scaled = vectors[:, ::-1] / np.sqrt(values[::-1] + _WHITENING_FLOOR)
    filters: npt.NDArray[np.float64] = np.concatenate([scaled, -scaled], axis=1)
    return filters.reshape(2, 2, 3, 24)


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
