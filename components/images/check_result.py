"""The result of checking a file: an image to store, or a rejection with its reason."""

from dataclasses import dataclass
from enum import StrEnum

from components.images.options import MAX_SIDE, ImageOptions


class Category(StrEnum):
    """Why a file was rejected."""

    NOT_AN_IMAGE = "not an image"
    TRUNCATED = "truncated"
    TOO_LARGE = "too large"
    TOO_SMALL = "too small"
    UNSUPPORTED = "unsupported"
    UNREADABLE = "unreadable"
    REMOVED = "removed by a correction"


class Note(StrEnum):
    """How an image in use differs from its file."""

    FRAMES = "animated, only the first frame is used"
    PAGES = "several pages, only the first is used"
    DARK = "16 bits, but no value above a quarter of white"


class Rejected(Exception):
    """The file is not used; `category` and the message say why."""

    def __init__(self, category: Category, reason: str) -> None:
        """Keep the category for counting and the reason for reading."""
        super().__init__(reason)
        self.category = category


@dataclass(frozen=True)
class CheckedImage:
    """An image that the served graph shows as a person sees it, turned as its EXIF data say."""

    encoded: bytes
    format: str
    """"jpeg", "png", "gif" or "bmp"."""
    height: int
    """Pixels of the upright image."""
    width: int
    channels: int
    """1 for gray, 3 for color."""
    luminance: float | None
    """Mean luma, 0 to 255; None if the pixels were not decoded."""
    thumbprint: bytes = b""
    """See `make_thumbprint`; empty unless ingest looks for near duplicates."""
    notes: tuple[Note, ...] = ()


def check_size(width: int, height: int, config: ImageOptions) -> None:
    """Raise `Rejected` if the header states an image size outside of the limits."""
    size = f"{width} x {height} pixels"
    if width * height > config.max_image_mpixels * 1e6:
        raise Rejected(
            Category.TOO_LARGE, f"{size} exceed max_image_mpixels ({config.max_image_mpixels:g})"
        )
    if max(width, height) > MAX_SIDE:
        raise Rejected(Category.TOO_LARGE, f"{size}: a side exceeds {MAX_SIDE}")
    if min(width, height) < config.min_image_pixels:
        raise Rejected(
            Category.TOO_SMALL,
            f"{size}: a side is below min_image_pixels ({config.min_image_pixels})",
        )
