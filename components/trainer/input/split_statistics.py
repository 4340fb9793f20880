"""Moments of the pixels of a split, which training starts from."""

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.images.options import CHANNELS

# Records are ordered by hash, so the first ones are a random sample, always the same. 1,024 images
# put the mean within 1 % of the range; a pass of Transform over all images would double its time.
_IMAGES = 1024
_LEVELS = 256


def pixel_moments(dataset: tf.data.Dataset) -> tuple[list[float], list[float]]:
    """Return mean and variance, [3] each, 0 to 255, of the pixels of the first 1,024 images."""
    # Histograms keep the sums exact.
    counts = np.zeros((CHANNELS, _LEVELS), np.int64)
    for image in _sample(dataset):
        for channel in range(CHANNELS):
            counts[channel] += np.bincount(image[..., channel].ravel(), minlength=_LEVELS)
    values = np.arange(_LEVELS)
    pixels = counts[0].sum()
    mean = counts @ values / pixels
    return mean.tolist(), (counts @ values**2 / pixels - mean * mean).tolist()


def patch_covariance(dataset: tf.data.Dataset) -> list[list[float]]:
    """Return the covariance, [12, 12], of patches of two by two pixels of the same images.

    A patch is a vector by row, column and channel, of values from 0 to 255. Products are integers,
    so the sums are exact.
    """
    patches, total, products = 0, np.zeros(4 * CHANNELS), np.zeros((4 * CHANNELS, 4 * CHANNELS))
    for image in _sample(dataset):
        pixels = image.astype(np.float64)
        corners = (pixels[:-1, :-1], pixels[:-1, 1:], pixels[1:, :-1], pixels[1:, 1:])
        vectors = np.concatenate(corners, axis=-1).reshape(-1, 4 * CHANNELS)
        patches += len(vectors)
        total += vectors.sum(axis=0)
        products += vectors.T @ vectors
    mean = total / patches
    covariance: list[list[float]] = (products / patches - np.outer(mean, mean)).tolist()
    return covariance


def _sample(dataset: tf.data.Dataset) -> Iterator[npt.NDArray[np.uint8]]:
    images = (image for batch, _ in dataset.as_numpy_iterator() for image in batch)
    return itertools.islice(images, _IMAGES)
