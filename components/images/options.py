"""How image files are read, checked and stored: the options that ingest and prediction share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require
from components.contract.kinds import check_types
from components.contract.machine import available_cpus

_RANGES = {"max_image_mib": (0.001, 1_024), "requests": (1, 65_536), "threads": (1, 1_024)}


@dataclass(frozen=True)
class ImageOptions:
    """How image files are checked and stored."""

    check: Literal["pixels", "header"] = "pixels"
    """pixels: decode every image once, so that broken files are found here. header: check only the
    header and the end, several times as fast, for files that were checked before."""

    shrink: int | None = None
    """Resize images to this many pixels on the shorter side, and store them as JPEG. Smaller
    images stay as they are. Unset: keep the original files."""

    quality: int = 95
    """JPEG quality, 1 to 100, of images that are shrunk or transcoded to JPEG."""

    transcode: Literal["png", "jpeg"] = "png"
    """How to store images that TensorFlow would not decode to the pixels a person sees (WebP, TIFF,
    CMYK, EXIF rotation, transparency): losslessly, or at `quality` in a fifth of the bytes."""

    max_image_mpixels: float = 100.0
    """Reject larger images (million pixels) by their header, before decoding them."""

    min_image_pixels: int = 1
    """Reject images whose shorter side is below this many pixels."""

    def __post_init__(self) -> None:
        """Validate all fields."""
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
        """Return whether an image of this size, in pixels, will be resized."""
        return self.shrink is not None and min(width, height) > self.shrink


@dataclass(frozen=True)
class FileOptions(ImageOptions):
    """How image files are read, checked and stored."""

    max_image_mib: float = 64.0
    """Reject larger files (MiB) without reading them."""

    threads: int | None = None
    """Shards that one worker writes at the same time, each in a thread, or, from 10,000 local files
    on, in a process, as the interpreter lock slows threads down. Unset: one per core."""

    requests: int = 512
    """Remote files that one worker requests at the same time. gcsfs opens 100 connections; the
    other requests wait for one, or are already being read."""

    def __post_init__(self) -> None:
        """Validate all fields."""
        super().__post_init__()
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            require(
                value is None or low <= value <= high,
                f"ingest.{name} is {value}: it must be from {low} to {high:,}.",
            )

    @property
    def workers(self) -> int:
        """Threads of one worker: `threads`, or one per available core."""
        return self.threads or available_cpus()
