"""Statistics of pixels: of each image, to show odd ones, and of a split, to start training from."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from components.images.options import CHANNELS

Pixels = npt.NDArray[np.uint8]
Batches = Iterable[tuple[Pixels, Any]]
"""Images, uint8 [batch, height, width, 3], and their labels."""

STATISTICS = ("brightness_low", "brightness_high", "contrast", "sharpness")
"""Names of what `measure_pixels` returns."""

# Records are ordered by hash, so the first ones are a random sample, always the same. 1,024 images
# put the mean within 1 % of the range; a pass of Transform over all images would double its time.
_IMAGES = 1024
_LEVELS = 256

# Sharpness divides what the finest scale shows by what the next one shows; noise of a JPEG, in
# squared levels, must not pass for detail.
_NOISE = 1.0


def measure_pixels(images: Pixels) -> dict[str, npt.NDArray[np.float32]]:
    """Measure uint8 [images, height, width, 3] RGB.

    Returns:
        Statistic → float32 [images]. `brightness_low` and `brightness_high`: the 5th and the 99th
        percentile of the luma, 0 to 1; `contrast`: its standard deviation, 0 to 0.5;
        `sharpness`: energy of the finest scale relative to the next coarser one.
    """
    count, height, width, _ = images.shape
    if not count:
        return {name: np.empty(0, np.float32) for name in STATISTICS}
    luma = cv2.cvtColor(images.reshape(count * height, width, 3), cv2.COLOR_RGB2GRAY)
    luma = luma.reshape(count, height, width)
    fractions, levels = _count_levels(luma), np.arange(256)
    variance = fractions @ levels**2 - (fractions @ levels) ** 2
    columns = (
        _find_level(fractions, 0.05) / 255,
        _find_level(fractions, 0.99) / 255,
        np.sqrt(np.maximum(variance, 0)) / 255,
        _measure_sharpness(luma),
    )
    return {
        name: column.astype(np.float32) for name, column in zip(STATISTICS, columns, strict=True)
    }


def _count_levels(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Return the fraction of each level in each image, [images, 256]."""
    flat = values.reshape(len(values), -1)
    return np.array([np.bincount(row, minlength=256) for row in flat]) / flat.shape[1]


def _find_level(fractions: npt.NDArray[np.float64], quantile: float) -> npt.NDArray[np.int64]:
    levels: npt.NDArray[np.int64] = np.argmax(
        np.cumsum(fractions, axis=1) >= quantile - 1e-9, axis=1
    )
    return levels


def _measure_sharpness(luma: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Compare two octaves: in photographs their energies are alike, blurring removes the finer."""
    ratios = []
    for image in luma.astype(np.float32):
        smooth = cv2.GaussianBlur(image, (0, 0), 1)
        smoother = cv2.GaussianBlur(smooth, (0, 0), 2)
        bands = (image - smooth, smooth - smoother)
        fine, coarse = (cv2.meanStdDev(band)[1].item() for band in bands)
        ratios.append(fine**2 / (coarse**2 + _NOISE))
    return np.array(ratios)


def pixel_moments(batches: Batches) -> tuple[list[float], list[float]]:
    """Return mean and variance, [3] each, 0 to 255, of the pixels of the first 1,024 images."""
    # Histograms keep the sums exact.
    counts = np.zeros((CHANNELS, _LEVELS), np.int64)
    for image in _sample(batches):
        for channel in range(CHANNELS):
            counts[channel] += np.bincount(image[..., channel].ravel(), minlength=_LEVELS)
    values = np.arange(_LEVELS)
    pixels = counts[0].sum()
    mean = counts @ values / pixels
    return mean.tolist(), (counts @ values**2 / pixels - mean * mean).tolist()


def patch_covariance(batches: Batches) -> list[list[float]]:
    """Return the covariance, [12, 12], of patches of two by two pixels of the same images.

    A patch is a vector by row, column and channel, of values from 0 to 255. Products are integers,
    so the sums are exact.
    """
    patches, total, products = 0, np.zeros(4 * CHANNELS), np.zeros((4 * CHANNELS, 4 * CHANNELS))
    for image in _sample(batches):
        pixels = image.astype(np.float64)
        corners = (pixels[:-1, :-1], pixels[:-1, 1:], pixels[1:, :-1], pixels[1:, 1:])
        vectors = np.concatenate(corners, axis=-1).reshape(-1, 4 * CHANNELS)
        patches += len(vectors)
        total += vectors.sum(axis=0)
        products += vectors.T @ vectors
    mean = total / patches
    covariance: list[list[float]] = (products / patches - np.outer(mean, mean)).tolist()
    return covariance


def _sample(batches: Batches) -> Iterator[Pixels]:
    images = (image for batch, _ in batches for image in batch)
    return itertools.islice(images, _IMAGES)
