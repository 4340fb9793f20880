"""Color profiles (ICC): find those that differ from sRGB, and convert pixels to sRGB."""

import functools
import io

import numpy as np
from PIL import Image, ImageCms

from components.images.jpeg_frame import walk_segments

# Profiles of printers take up to 3 MB.
_MOST_BYTES = 4 * 2**20
# Levels of 255. Variants of sRGB differ by as much in dark colors, Display P3 by 100. Encoding
# a JPEG anew would change more.
_SAME = 10
_SPACES = {"RGB": "RGB", "RGBA": "RGB", "P": "RGB", "PA": "RGB", "CMYK": "CMYK"}

_SIGNATURE = b"ICC_PROFILE\0"
_APP2 = 0xE2

_GRID = np.stack(np.meshgrid(*[np.arange(0, 256, 15, np.uint8)] * 3), axis=-1).reshape(1, -1, 3)


def to_srgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to sRGB by its profile, if that differs; else to RGB."""
    transform = find_transform(image)
    if transform is None:
        return image.convert("RGB")
    converted = ImageCms.applyTransform(image.convert(_SPACES[image.mode]), transform)
    assert converted is not None  # It would be if it were changed in place.
    return converted


def find_transform(image: Image.Image) -> ImageCms.ImageCmsTransform | None:
    """Return the transform from the profile of an image to sRGB.

    Return None for an image without a profile or with one of sRGB, gray, broken or above 4 MiB.
    """
    profile, space = image.info.get("icc_profile"), _SPACES.get(image.mode)
    return make_transform(profile, space) if isinstance(profile, bytes) and space else None


@functools.lru_cache(16)  # All photographs of a camera have the same profile.
def make_transform(profile: bytes, space: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform to sRGB from a profile of `space`, "RGB" or "CMYK"; None as above."""
    if not 0 < len(profile) <= _MOST_BYTES:
        return None
    try:
        opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if opened.profile.xcolor_space.strip() != space:
            return None
        transform = ImageCms.buildTransform(opened, ImageCms.createProfile("sRGB"), space, "RGB")
        grid = Image.fromarray(_GRID)
        seen = ImageCms.applyTransform(grid, transform) if space == "RGB" else None
    except Exception:  # Little CMS and Pillow raise several classes for broken profiles.
        return None
    if seen is None:
        return transform
    differences = np.abs(np.asarray(seen).astype(int) - _GRID)
    return transform if differences.max() > _SAME else None


def read_jpeg_profile(data: bytes) -> bytes:
    """Return the profile of a JPEG; empty without one, or if parts of it are missing.

    Source: ICC.1:2022, B.4.
    """
    parts = []
    for marker, place in walk_segments(data):
        if marker == _APP2 and data.startswith(_SIGNATURE, place + 4):
            end = place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")
            parts.append(data[place + 4 + len(_SIGNATURE) : end])
    whole = len(parts) > 0 and all(len(part) > 1 and part[1] == len(parts) for part in parts)
    return b"".join(part[2:] for part in sorted(parts)) if whole else b""


def drop_png_profile(data: bytes) -> bytes:
    """Return a PNG without its profile, which Pillow does not open if it inflates to megabytes."""
    place = data.find(b"iCCP") - 4
    if place < 0 or not data.startswith(b"\x89PNG"):
        return data
    size = int.from_bytes(data[place : place + 4], "big")
    return data[:place] + data[place + 12 + size :]
