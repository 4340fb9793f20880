"""Pictures of the report: thumbnails of any file, in bounded memory, and heat maps over images."""

import contextlib
import io
import math
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image, ImageOps

from components.images.formats import open_image
from components.images.jpeg_frame import START
from components.images.options import ImageOptions
from components.images.transcode import Pixels, as_seen

SIDE = 96
"""Largest side of a thumbnail, pixels. As JPEG a photograph takes 2 to 4 KB, 4 to 8 KB if it is not
shrunk, noise 18 KB: 330 thumbnails take 1 to 2 MB, and at worst 6 MB."""

SMALLEST_HEAT_MAP = 96
"""Smaller images are enlarged by an integer factor under a heat map, so that both are visible."""

_JPEG_END = b"\xff\xd9"
# Decoders shrink JPEGs as they decode; other formats take 4 bytes a pixel, twice.
_JPEG_LIMITS, _LIMITS = (ImageOptions(max_image_mpixels=limit) for limit in (100, 40))

# Resizing loses more than encoding; at the original size, each pixel may count.
_SHRUNK = {"quality": 80, "colorsubsampling": "420"}
_WHOLE = {"quality": 90, "colorsubsampling": "444"}

# Red, green, blue and opacity for values from 0 to 1. Brightness grows with the value, so the map
# also works in gray. The server's page uses the same colors.
_RAMP = np.array([(20, 20, 60, 0.55), (190, 50, 90, 0.6), (255, 200, 60, 0.75)], np.float32)


@dataclass(frozen=True)
class Thumbnail:
    """A thumbnail, small enough to be part of the page."""

    jpeg: bytes
    width: int
    """Pixels."""
    height: int


def make_thumbnail(encoded: bytes, *, side: int = SIDE) -> Thumbnail | None:
    """Show the first frame of any file as a person sees it: upright, transparency on white.

    Smaller images are not enlarged to `side` pixels. The missing part of a truncated image is black
    or gray. Return None for files that are not images, have no readable part, or state more pixels
    than are safe to decode.
    """
    try:
        image = _open(encoded)
        # Decode four times the pixels needed, for resizing to average.
        image.draft(None, (2 * side, 2 * side))
        if not _load(image):
            return None
        with contextlib.suppress(Exception):  # Broken EXIF data are common.
            image = ImageOps.exif_transpose(image)
        return picture_of(as_seen(image, orientation=1), side=side)
    except Exception:  # Decoders raise anything from SyntaxError to MemoryError.
        return None


def _open(encoded: bytes) -> Image.Image:
    """Read the header; raise if the image is too large or of an unsupported kind."""
    if encoded.startswith(START):
        # A truncated progressive JPEG shows nothing until the decoder meets its end.
        encoded += _JPEG_END
        return open_image(encoded, _JPEG_LIMITS)
    return open_image(encoded, _LIMITS)


def _load(image: Image.Image) -> bool:
    """Decode as much as possible; return whether that is anything."""
    try:
        image.load()
    except Exception:
        # Pillow keeps the rows before the error, and would decode again while there are tiles.
        # LOAD_TRUNCATED_IMAGES applies to all threads, and does not help with broken files.
        image.tile = []  # type: ignore[attr-defined]
        return image.getbbox() is not None
    return True


def picture_of(pixels: Pixels, *, side: int = SIDE) -> Thumbnail:
    """Encode uint8 [height, width, 3] RGB, shrunk to at most `side` pixels on the longer side.

    Images that are not shrunk keep full chroma, as they may have only a few pixels.
    """
    height, width = pixels.shape[:2]
    factor = max(height, width) / side
    if factor > 1:
        size = (max(1, round(width / factor)), max(1, round(height / factor)))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    jpeg = simplejpeg.encode_jpeg(
        np.ascontiguousarray(pixels), **(_SHRUNK if factor > 1 else _WHOLE)
    )
    height, width = pixels.shape[:2]
    return Thumbnail(jpeg, width, height)


def lay_over(heat: npt.NDArray[np.float32], image: Pixels) -> Pixels:
    """Color uint8 [side, side, 3] by a heat map [side, side], 0 to 1; it may be enlarged."""
    factor = max(1, math.ceil(SMALLEST_HEAT_MAP / image.shape[0]))
    large = np.repeat(np.repeat(image, factor, axis=0), factor, axis=1).astype(np.float32)
    size = (large.shape[1], large.shape[0])
    smooth = np.clip(cv2.resize(heat, size, interpolation=cv2.INTER_LINEAR), 0, 1)
    places = np.linspace(0, 1, len(_RAMP))
    colors = np.stack([np.interp(smooth, places, column) for column in _RAMP.T], axis=-1)
    alpha = colors[..., 3:]
    blended: Pixels = np.round(large * (1 - alpha) + colors[..., :3] * alpha).astype(np.uint8)
    return blended


def read_png(encoded: bytes) -> Any:
    """Decode a PNG to uint8 [height, width, 3]."""
    return np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))
