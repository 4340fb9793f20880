"""Mean and variance of the training pixels, which the model normalises with."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from components.images.canonical import CHANNELS

_IMAGES = 1024
_BATCH = 64


def pixel_moments(dataset: tf.data.Dataset) -> tuple[list[float], list[float]]:
    """Return mean and variance, [3] each, 0 to 255, of the pixels of the first 1,024 images.

    Records lie in the order of hashes, so the first ones are a random sample, and the same one
    each time. 1,024 images put the mean within 1 % of the range; a pass of Transform over all of
    them would double its time. Summed as integers, and so exactly.

    Args:
        dataset: batches of (uint8 [batch, height, width, 3], labels).
    """
    pixels = 0
    sums, squares = np.zeros(CHANNELS, np.int64), np.zeros(CHANNELS, np.int64)
    for images, _ in dataset.unbatch().take(_IMAGES).batch(_BATCH):
        of_images = [tf.reduce_sum(x, axis=0).numpy() for x in channel_sums(images)]
        sums, squares = sums + of_images[0], squares + of_images[1]
        pixels += images.shape[0] * images.shape[1] * images.shape[2]
    mean = sums / pixels
    return mean.tolist(), (squares / pixels - mean * mean).tolist()


def channel_sums(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the sums of the values and of their squares, of each channel of each image.

    Args:
        images: uint8 [batch, height, width, 3].

    Returns:
        Two int64 [batch, 3]: exact, so that they add up to the same in whatever order.
    """

    def one(image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        values = tf.cast(image, tf.int64)
        return tf.reduce_sum(values, axis=[0, 1]), tf.reduce_sum(values * values, axis=[0, 1])

    # Image by image: Beam's batches of 1,000 would take gigabytes as 64-bit integers.
    spec = tf.TensorSpec([CHANNELS], tf.int64)
    return tuple(tf.map_fn(one, images, fn_output_signature=(spec, spec)))
