"""The result of checking a file: an image to store, or a rejection with its reason."""

from dataclasses import dataclass
from enum import StrEnum


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
