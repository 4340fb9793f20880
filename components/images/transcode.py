"""Images as NumPy arrays during ingest: seen as by a person, shrunk, measured and encoded."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import simplejpeg
from PIL import Image, ImageOps

from components.images.check_result import CheckedImage
from components.images.options import ImageOptions

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

# Ingest runs a thread per shard, with which OpenCV's threads would compete.
cv2.setNumThreads(1)

# Above this factor bilinear sampling skips pixels; averaging areas does not.
_ALIASING = 2.0


def as_seen(image: Image.Image, *, orientation: int) -> Pixels:
    """Return the first frame upright, transparency on white, as [height, width, 3] RGB.

    16-bit gray is scaled to 8 bits. Color profiles are ignored, as TensorFlow ignores them.
    """
    upright = ImageOps.exif_transpose(image) if orientation != 1 else image
    if upright.mode.startswith("I;16"):
        upright = upright.convert("I").point(lambda value: value / 256).convert("L")
    elif upright.has_transparency_data:
        layer = upright.convert("RGBA")
        upright = Image.new("RGB", layer.size, "white")
        upright.paste(layer, mask=layer.getchannel("A"))
    return np.asarray(upright.convert("RGB"))


def shrink(pixels: Pixels, *, side: int) -> Pixels:
    """Resize [height, width] or [height, width, 3] so that the shorter side has `side` pixels."""
    height, width = pixels.shape[:2]
    factor = min(height, width) / side
    size = (max(side, round(width / factor)), max(side, round(height / factor)))
    method = cv2.INTER_AREA if factor >= _ALIASING else cv2.INTER_LINEAR
    resized: Pixels = cv2.resize(pixels, size, interpolation=method)
    return resized


def mean_luminance(pixels: Pixels) -> float:
    """Return the mean luma (ITU-R BT.601) of gray or RGB pixels, 0 to 255."""
    gray = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY) if pixels.ndim == 3 else pixels
    return float(cv2.mean(gray)[0])


def to_jpeg(pixels: Pixels, *, quality: int) -> CheckedImage:
    """Encode gray [height, width] or RGB [height, width, 3] as JPEG with half chroma resolution."""
    gray = pixels.ndim == 2
    encoded: bytes = simplejpeg.encode_jpeg(
        np.ascontiguousarray(pixels[..., None] if gray else pixels),
        quality=quality,
        colorspace="GRAY" if gray else "RGB",
        colorsubsampling="Gray" if gray else "420",
    )
    height, width = pixels.shape[:2]
    channels = 1 if gray else 3
    return CheckedImage(encoded, "jpeg", height, width, channels, mean_luminance(pixels))


def store(pixels: Pixels, config: ImageOptions) -> CheckedImage:
    """Encode RGB pixels of an image that cannot be kept, as `config` asks."""
    height, width, channels = pixels.shape
    if config.shrink and config.is_shrunk(width, height):
        return to_jpeg(shrink(pixels, side=config.shrink), quality=config.quality)
    if config.transcode == "jpeg":
        return to_jpeg(pixels, quality=config.quality)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return CheckedImage(buffer.getvalue(), "png", height, width, channels, mean_luminance(pixels))
