"""Originals for training: files out of which readers can cut any window, at any scale."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
import tensorflow as tf

from components.images.canonical import CanonicalForm, decode_upright
from components.images.jpeg_frame import read_frame
from components.images.orientation import is_plainly_upright
from components.images.upright import read_orientations

# Four times those of the largest size that a model sees, 2048 by 2048. Without a limit, a file of
# any size would be decoded in every epoch, and a progressive one be held in memory as a whole.
_MOST_PIXELS = 2**24
# Longest side, pixels: JPEG_MAX_DIMENSION of libjpeg.
_LONGEST = 65_500

Pixels = npt.NDArray[np.uint8]

_SUBSAMPLING = {"full": "444", "half": "420"}


def keep_original(data: bytes, config: CanonicalForm) -> bytes:
    """Return an upright JPEG of all pixels: `data` itself if that is what it is.

    PNG, GIF, BMP, CMYK, files that are to be turned, JPEGs with damage that TensorFlow overlooks,
    and those of more than 16.8 million pixels are encoded once, at `config.quality` and
    `config.chroma`; the last of them at that size.

    Raises:
        tf.errors.InvalidArgumentError: TensorFlow cannot decode it.
    """
    if _is_kept(data):
        return data
    pixels: Pixels = _upright_pixels()(tf.constant(data)).numpy()
    encoded: bytes = simplejpeg.encode_jpeg(
        _bounded(pixels), config.quality, "RGB", _SUBSAMPLING[config.chroma]
    )
    return encoded


def _bounded(pixels: Pixels) -> Pixels:
    """Shrink [height, width, 3] to what is stored at most, in its shape."""
    height, width = pixels.shape[:2]
    factor = min(math.sqrt(_MOST_PIXELS / (height * width)), _LONGEST / max(height, width))
    if factor >= 1:
        return pixels
    size = (max(1, int(width * factor)), max(1, int(height * factor)))
    resized: Pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return resized


def _is_kept(data: bytes) -> bool:
    """Say whether a file is a whole, upright JPEG in gray or colour, of pixels that fit."""
    frame = read_frame(data)
    if frame is None or frame.height * frame.width > _MOST_PIXELS or not is_plainly_upright(data):
        return False
    try:
        _, _, colours, _ = simplejpeg.decode_jpeg_header(data)
        # All of the entropy-coded bytes, and a pixel of each block: what is broken shows here, and
        # not in the middle of training. 0.83 ms for 110 KB, where Transform's graph takes 2.4.
        simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1)
    except Exception:  # ValueError for damage, KeyError for a rare subsampling, MemoryError.
        return False
    return colours in ("YCbCr", "RGB", "Gray")


@functools.cache
def _upright_pixels() -> Callable[[tf.Tensor], tf.Tensor]:
    """Return the served graph's first steps: a file to uint8 [height, width, 3], upright."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
    def decode(file: tf.Tensor) -> tf.Tensor:
        image, _ = decode_upright(file, read_orientations(file[tf.newaxis])[0])
        return image

    return decode  # type: ignore[no-any-return]
