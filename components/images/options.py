"""How image files are checked and stored: a part of the configuration of ingest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require
from components.contract.kinds import check_types


@dataclass(frozen=True)
class ImageOptions:
    """How image files are checked and stored."""

    check: Literal["pixels", "header"] = "pixels"
    """pixels: decode every image once, so that a broken one is found here. header: look at header
    and end only, several times as fast, for files that were checked before."""

    shrink: int | None = None
    """Resize images so that the shorter side has this many pixels, and store them as JPEG.
    Smaller ones are left as they are. Unset: keep the original files."""

    quality: int = 95
    """JPEG quality, 1 to 100, of images that are shrunk or transcoded to JPEG."""

    transcode: Literal["png", "jpeg"] = "png"
    """How to store what TensorFlow would not decode to the pixels a person sees (WebP, TIFF, CMYK,
    EXIF rotation, transparency): without loss, or at `quality` in a fifth of the bytes."""

    max_image_mpixels: float = 100.0
    """Reject larger images (million pixels), from the header, before decoding them."""

    min_image_pixels: int = 1
    """Reject images whose shorter side is below this many pixels."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "ingest")
        require(
            1 <= self.quality <= 100, f"ingest.quality is {self.quality}: it must be from 1 to 100."
        )
        require(
            self.max_image_mpixels > 0,
            f"ingest.max_image_mpixels is {self.max_image_mpixels}: it must be above 0.",
        )
        for name in ("shrink", "min_image_pixels"):
            value = getattr(self, name)
            require(
                value is None or value >= 1, f"ingest.{name} is {value}: it must be at least 1."
            )

    def is_shrunk(self, width: int, height: int) -> bool:
        """Say whether an image of this size, in pixels, is to be made smaller."""
        return self.shrink is not None and min(width, height) > self.shrink
