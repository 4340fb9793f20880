"""What the check of image files has to be told; the configuration of ingest has all of it."""

from __future__ import annotations

from typing import Literal, Protocol


class ImageOptions(Protocol):
    """How image files are checked and stored; the fields of `IngestConfig` say more."""

    @property
    def check(self) -> Literal["pixels", "header"]:
        """Decode every pixel, or look at header and end only."""

    @property
    def shrink(self) -> int | None:
        """Pixels of the shorter side to resize larger images to; None: keep them."""

    @property
    def quality(self) -> int:
        """JPEG quality, 1 to 100."""

    @property
    def transcode(self) -> Literal["png", "jpeg"]:
        """How to store what TensorFlow would not decode to the pixels a person sees."""

    @property
    def max_image_mpixels(self) -> float:
        """Largest image, million pixels."""

    @property
    def min_image_pixels(self) -> int:
        """Shortest allowed shorter side, pixels."""

    def is_shrunk(self, width: int, height: int) -> bool:
        """Say whether an image of this size, in pixels, is to be made smaller."""
