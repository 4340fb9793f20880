"""Mean and variance of the training pixels, which the model normalises with."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf

from components.images.canonical_form import CHANNELS

_IMAGES = 1024
_LEVELS = 256


def pixel_moments(dataset: tf.data.Dataset) -> tuple[list[float], list[float]]:
    """Return mean and variance, [3] each, 0 to 255, of the pixels of the first 1,024 images.

    Records lie in the order of hashes, so the first ones are a random sample, and the same one
    each time. 1,024 images put the mean within 1 % of the range; a pass of Transform over all of
    them would double its time. Pixels are counted by their value, so that the sums are exact.

    Args:
        dataset: batches of (uint8 [batch, height, width, 3], labels).
    """
    counts = np.zeros((CHANNELS, _LEVELS), np.int64)
    images = (image for batch, _ in dataset.as_numpy_iterator() for image in batch)
    for image in itertools.islice(images, _IMAGES):
        for channel in range(CHANNELS):
            counts[channel] += np.bincount(image[..., channel].ravel(), minlength=_LEVELS)
    values = np.arange(_LEVELS)
    pixels = counts[0].sum()
    mean = counts @ values / pixels
    return mean.tolist(), (counts @ values**2 / pixels - mean * mean).tolist()
