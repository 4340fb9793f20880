"""How image files are read, checked and stored: the options that ingest and prediction share."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Gt, Interval

from components.contract.configuration import Number, Positive, configuration
from components.contract.machine import available_cpus

ALIASING = 2.0
"""Above this factor bilinear sampling skips pixels; averaging areas does not."""


@configuration("ingest")
class ImageOptions:
    """How image files are checked and stored."""

    check: Literal["pixels", "header"] = "pixels"
    """pixels: decode every image once, so that broken files are found here. header: check only the
    header and the end, several times as fast, for files that were checked before."""

    shrink: Positive | None = None
    """Resize images to this many pixels on the shorter side, and store them as JPEG. Smaller
    images stay as they are. The served model shrinks likewise: what it sees differs from training
    by less than 2 of 255 levels on average. Unset: keep the original files."""

    quality: Annotated[Positive, Interval(le=100)] = 95
    """JPEG quality of images that are shrunk or transcoded to JPEG."""

    transcode: Literal["png", "jpeg"] = "png"
    """How to store images that TensorFlow would not decode to the pixels a person sees (WebP, TIFF,
    transparency): losslessly, or at `quality` in a fifth of the bytes. A JPEG stays a JPEG: it is
    kept, or encoded anew with half the steps of its own quantization."""

    max_image_mpixels: Annotated[Number, Gt(0)] = 100.0
    """Reject larger images (million pixels) by their header, before decoding them."""

    min_image_pixels: Positive = 1
    """Reject images whose shorter side is below this many pixels."""

    def is_shrunk(self, width: int, height: int) -> bool:
        """Return whether an image of this size, in pixels, will be resized."""
        return self.shrink is not None and min(width, height) > self.shrink


@configuration("ingest")
class FileOptions(ImageOptions):
    """How image files are read, checked and stored."""

    max_image_mib: Annotated[Number, Interval(ge=0.001, le=1024)] = 64.0
    """Reject larger files (MiB) without reading them."""

    threads: Annotated[Positive, Interval(le=1024)] | None = None
    """Shards that one worker writes at the same time, each in a thread, or, from 10,000 local files
    on, in a process, as the interpreter lock slows threads down. Unset: one per core."""

    requests: Annotated[Positive, Interval(le=65_536)] = 512
    """Remote files that one worker requests at the same time. gcsfs opens 100 connections; the
    other requests wait for one, or are already being read."""

    @property
    def workers(self) -> int:
        """Threads of one worker: `threads`, or one per available core."""
        return self.threads or available_cpus()
