"""Originals for training: upright JPEGs from which readers can take any crop, at any scale."""

import math

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
import tensorflow as tf

from components.images.canonical import decode_upright
from components.images.jpeg_frame import read_frame, state_orientation
from components.images.options import TransformConfig
from components.images.upright import read_orientations

# Four times the pixels of the largest model input, 2048 by 2048: bounds the time of each epoch, and
# the memory that a progressive JPEG takes.
_MOST_PIXELS = 2**24
# Longest side, pixels: JPEG_MAX_DIMENSION of libjpeg.
_LONGEST = 65_500

Pixels = npt.NDArray[np.uint8]

_SUBSAMPLING = {"full": "444", "half": "420"}


def keep_original(data: bytes, config: TransformConfig) -> bytes:
    """Return an upright JPEG at full resolution: `data` itself if it is one.

    Other formats, CMYK, rotated files, JPEGs with damage that TensorFlow ignores, and images of
    more than 16.8 million pixels, which are shrunk to that, are encoded once, at `config.quality`
    and `config.chroma`.

    Raises:
        tf.errors.InvalidArgumentError: TensorFlow cannot decode it.
    """
    if _is_kept(data):
        return data
    # As in the served graph.
    image, _ = decode_upright(tf.constant(data), read_orientations(tf.constant([data]))[0])
    encoded: bytes = simplejpeg.encode_jpeg(
        _bounded(image.numpy()), config.quality, "RGB", _SUBSAMPLING[config.chroma]
    )
    return encoded


def _bounded(pixels: Pixels) -> Pixels:
    """Shrink [height, width, 3] to the limits, keeping its shape."""
    height, width = pixels.shape[:2]
    factor = min(math.sqrt(_MOST_PIXELS / (height * width)), _LONGEST / max(height, width))
    if factor >= 1:
        return pixels
    size = (max(1, int(width * factor)), max(1, int(height * factor)))
    resized: Pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return resized


def _is_kept(data: bytes) -> bool:
    """Return whether a file is an undamaged, upright JPEG in gray or color within the limits."""
    frame = read_frame(data)
    if frame is None or frame.height * frame.width > _MOST_PIXELS or state_orientation(data) != 1:
        return False
    try:
        _, _, colors, _ = simplejpeg.decode_jpeg_header(data)
        # Decode all entropy-coded bytes, and a pixel per block, so that damage shows here and not
        # during training. 0.83 ms for 110 KB, where Transform's graph takes 2.4 ms.
        simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1)
    except Exception:  # ValueError for damage, KeyError for rare subsampling, MemoryError.
        return False
    return colors in ("YCbCr", "RGB", "Gray")
