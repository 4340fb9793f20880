"""A heat map laid over the picture that it belongs to."""

from __future__ import annotations

import io
import math
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from components.images.transcode import Pixels

SMALLEST_SIDE = 96
"""Smaller pictures are enlarged by a whole number, so that both can be seen."""

# From 0 to 1: red, green, blue, opacity. Dark where nothing was found, bright where most was; also
# in gray, as light grows from one end to the other. The server's page draws with the same colours.
_RAMP = np.array([(20, 20, 60, 0.55), (190, 50, 90, 0.6), (255, 200, 60, 0.75)], np.float32)


def lay_over(heat: npt.NDArray[np.float32], picture: Pixels) -> Pixels:
    """Colour a picture by a heat map.

    Args:
        heat: [side, side], 0 to 1.
        picture: uint8 [side, side, 3].

    Returns:
        uint8 [n * side, n * side, 3].
    """
    factor = max(1, math.ceil(SMALLEST_SIDE / picture.shape[0]))
    large = np.repeat(np.repeat(picture, factor, axis=0), factor, axis=1).astype(np.float32)
    size = (large.shape[1], large.shape[0])
    smooth = np.clip(cv2.resize(heat, size, interpolation=cv2.INTER_LINEAR), 0, 1)
    places = np.linspace(0, 1, len(_RAMP))
    colours = np.stack([np.interp(smooth, places, column) for column in _RAMP.T], axis=-1)
    alpha = colours[..., 3:]
    blended: Pixels = np.round(large * (1 - alpha) + colours[..., :3] * alpha).astype(np.uint8)
    return blended


def read_png(encoded: bytes) -> Any:
    """Decode a PNG to uint8 [height, width, 3]."""
    return np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))
