"""Thumbnails of the report: from any bytes at all, in bounded memory, to a small JPEG."""

from __future__ import annotations

import contextlib
import io

import cv2
import numpy as np
import simplejpeg
from PIL import Image, ImageOps

from components.images import jpeg_check
from components.images.picture import Picture
from components.images.transcode import Pixels, as_seen

SIDE = 96
"""Pixels, at most, of each side of a thumbnail. As JPEG a photograph takes 2 to 4 KB, 4 to 8 KB if
it is not shrunk, noise 18 KB: 330 of them are 1 to 2 MB, and at worst 6."""

_JPEG_END = b"\xff\xd9"
# Not EPS, which would start Ghostscript, nor ICO, which may hold more pixels than it says.
_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
# Nobody knows which range of 32-bit pixels is black to white.
_UNKNOWN_RANGE = frozenset({"F", "I"})

# A JPEG is made smaller while it is decoded; anything else is held whole, 4 bytes a pixel, twice.
_MOST_JPEG_PIXELS = 100e6
_MOST_PIXELS = 40e6

# What is shown smaller than it is loses more to the resizing than to the encoding.
_SHRUNK = {"quality": 80, "colorsubsampling": "420"}
# In what is shown at its own size, each pixel may count.
_WHOLE = {"quality": 90, "colorsubsampling": "444"}


def make_thumbnail(encoded: bytes, *, side: int = SIDE) -> Picture | None:
    """Show a file's first frame as a person sees it: upright, transparency on white.

    Args:
        encoded: the content of any file, broken or hostile ones included.
        side: pixels, of the longer side of what is larger; nothing is enlarged.

    Returns:
        None for what is no image, has no readable part, or states more pixels than are safe to
        decode. Of an image that breaks off, the part before is shown, and the rest black or gray.
    """
    try:
        image = _open(encoded)
        # Four times the pixels that are wanted, for the resizing to average.
        image.draft(None, (2 * side, 2 * side))
        if not _load(image):
            return None
        with contextlib.suppress(Exception):  # Broken EXIF data are common.
            image = ImageOps.exif_transpose(image)
        return picture_of(as_seen(image, orientation=1), side=side)
    except Exception:  # From SyntaxError to MemoryError: each decoder has its own.
        return None


def _open(encoded: bytes) -> Image.Image:
    """Read the header; raise if the image is too large, or its kind cannot be shown."""
    if encoded.startswith(jpeg_check.START):
        # A progressive JPEG that breaks off gives nothing before it knows that this is all.
        encoded += _JPEG_END
    image = Image.open(io.BytesIO(encoded), formats=_FORMATS)
    is_jpeg = image.format in ("JPEG", "MPO")
    if image.width * image.height > (_MOST_JPEG_PIXELS if is_jpeg else _MOST_PIXELS):
        raise ValueError(f"{image.width} x {image.height} pixels are too many")
    if image.mode in _UNKNOWN_RANGE:
        raise ValueError(f"pixels of mode {image.mode}")
    return image


def _load(image: Image.Image) -> bool:
    """Decode as much as there is; say whether that is anything."""
    try:
        image.load()
    except Exception:
        # Pillow keeps the rows before the error, and would decode again while there are tiles. Its
        # LOAD_TRUNCATED_IMAGES would keep them too, but for all threads, and not in broken files.
        image.tile = []  # type: ignore[attr-defined]
        return image.getbbox() is not None
    return True


def picture_of(pixels: Pixels, *, side: int = SIDE) -> Picture:
    """Encode uint8 [height, width, 3] RGB; if its longer side has more pixels, shrink it to `side`.

    What is not shrunk keeps the resolution of its colours, as a few pixels may be all there is.
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
    return Picture(jpeg, width, height)
