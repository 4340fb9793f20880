"""A thumbnail as the report shows it, apart from what makes it: the page needs no decoder."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Thumbnail:
    """A thumbnail, small enough to be part of the page."""

    jpeg: bytes
    width: int
    """Pixels."""
    height: int
