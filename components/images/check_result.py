"""What the check of a file ends in: an image to store, or a rejection that says why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from components.images.options import ImageOptions
from components.storage.fetch import Content, Unread


class Category(StrEnum):
    """Why a file was rejected."""

    NOT_AN_IMAGE = "not an image"
    TRUNCATED = "truncated"
    TOO_LARGE = "too large"
    TOO_SMALL = "too small"
    UNSUPPORTED = "unsupported"
    UNREADABLE = "unreadable"
    LABEL_CONFLICT = "label conflict"


class Rejected(Exception):
    """The file is not used; `category` and the text say why."""

    def __init__(self, category: Category, reason: str) -> None:
        """Keep the category for counting and the reason for reading."""
        super().__init__(reason)
        self.category = category


def usable(content: Content) -> bytes:
    """Return the bytes of a file; raise `Rejected` if it was not read."""
    if isinstance(content, Unread):
        category = Category.TOO_LARGE if content.too_large else Category.UNREADABLE
        raise Rejected(category, content.reason)
    return content


@dataclass(frozen=True)
class CheckedImage:
    """An image that TensorFlow decodes to the pixels a person sees."""

    encoded: bytes
    format: str
    """"jpeg", "png", "gif" or "bmp"."""
    height: int
    """Pixels, as `encoded` decodes."""
    width: int
    channels: int
    """1 for gray, 3 for colour."""
    luminance: float | None
    """Mean luma, 0 to 255; None when the pixels were not decoded."""


MAX_SIDE = 65_500
"""Pixels; what a JPEG can have. TensorFlow's PNG decoder stops at a million."""


def check_size(width: int, height: int, config: ImageOptions) -> None:
    """Raise `Rejected` when the header states a size, in pixels, that is not wanted."""
    if width * height > config.max_image_mpixels * 1e6:
        raise Rejected(
            Category.TOO_LARGE,
            f"{width} x {height} pixels, above {config.max_image_mpixels:g} million",
        )
    if max(width, height) > MAX_SIDE:
        raise Rejected(
            Category.TOO_LARGE, f"{width} x {height} pixels, longer side above {MAX_SIDE}"
        )
    if min(width, height) < config.min_image_pixels:
        raise Rejected(
            Category.TOO_SMALL,
            f"{width} x {height} pixels, shorter side below {config.min_image_pixels}",
        )
