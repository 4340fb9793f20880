"""Statistics of pixels that show odd images: too dark, too bright, blurred, blank, gray."""

import cv2
import numpy as np
import numpy.typing as npt

from components.images.transcode import Pixels

STATISTICS = (
    "brightness_low",
    "brightness_high",
    "contrast",
    "entropy",
    "sharpness",
    "colorfulness",
)
"""Names of what `measure_pixels` returns."""

# Sharpness divides what the finest scale shows by what the next one shows; noise of a JPEG, in
# squared levels, must not pass for detail.
_NOISE = 1.0


def measure_pixels(images: Pixels) -> dict[str, npt.NDArray[np.float32]]:
    """Measure uint8 [images, height, width, 3] RGB.

    Returns:
        Statistic → float32 [images]. `brightness_low` and `brightness_high`: the 5th and the 99th
        percentile of the luma, 0 to 1; `contrast`: its standard deviation, 0 to 0.5; `entropy` of
        the luma, bits; `sharpness`: energy of the finest scale relative to the next coarser one;
        `colorfulness`: the 99th percentile of the range between the channels, 0 to 1.
    """
    count, height, width, _ = images.shape
    if not count:
        return {name: np.empty(0, np.float32) for name in STATISTICS}
    luma = cv2.cvtColor(images.reshape(count * height, width, 3), cv2.COLOR_RGB2GRAY)
    luma = luma.reshape(count, height, width)
    red, green, blue = np.moveaxis(images, -1, 0)
    chroma = np.maximum(np.maximum(red, green), blue) - np.minimum(np.minimum(red, green), blue)
    fractions, levels = _count_levels(luma), np.arange(256)
    variance = fractions @ levels**2 - (fractions @ levels) ** 2
    information = fractions * np.log2(np.where(fractions > 0, fractions, 1))
    columns = (
        _find_level(fractions, 0.05) / 255,
        _find_level(fractions, 0.99) / 255,
        np.sqrt(np.maximum(variance, 0)) / 255,
        -information.sum(axis=1),
        _measure_sharpness(luma),
        _find_level(_count_levels(chroma), 0.99) / 255,
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
