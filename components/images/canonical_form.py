"""The form that images are brought to: what writes and reads them has to be told."""

from __future__ import annotations

from typing import Literal, Protocol

CHANNELS = 3

SEARCHED_BYTES = 65_536
"""Where ingest and the served model look for how an image is to be turned: a JPEG has its metadata
at the beginning, and a PNG its XMP."""


class CanonicalForm(Protocol):
    """The form of stored images; the fields of `TransformConfig` say more."""

    @property
    def fit(self) -> Literal["crop", "stretch", "letterbox"]:
        """How other shapes become square."""

    @property
    def storage(self) -> Literal["jpeg", "png", "raw", "originals"]:
        """Format of the stored images; with originals, JPEG wherever images have one size."""

    @property
    def quality(self) -> int:
        """JPEG quality, 1 to 100."""

    @property
    def chroma(self) -> Literal["full", "half"]:
        """Resolution of the colours of stored JPEGs."""

    @property
    def margin(self) -> int:
        """Pixels by which stored images are larger than the model sees them."""

    @property
    def seen_size(self) -> int:
        """Side of the images that the model sees, pixels."""

    @property
    def stored_size(self) -> int:
        """Side of the stored images, pixels."""
