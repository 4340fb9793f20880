"""How image files are read, checked and stored: the options of ingest, prediction and Transform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Gt, Interval

from components.contract.configuration import Number, Positive, configuration, from_dict
from components.contract.example import LABEL_VOCABULARY
from components.host.machine import available_cpus
from components.images.check_result import Category, Rejected

CHANNELS = 3

MAX_SIDE = 65_500
"""JPEG's limit, pixels. TensorFlow's PNG decoder stops at a million."""

ALIASING = 2.0
"""Above this factor bilinear sampling skips pixels; averaging areas does not."""

SHRINKING = ("shrink", "quality")
"""Options of ingest that a served model needs to prepare images likewise."""


@configuration("ingest")
class ImageOptions:
    """How image files are checked and stored."""

    check: Literal["pixels", "header"] = "pixels"
    """How thoroughly to check files. pixels: decode every image once, so that broken files are
    found here. header: check only the header and the end, several times as fast, for files that
    were checked before."""

    shrink: Positive | None = None
    """Resize images to this many pixels on the shorter side, and store them as JPEG. Smaller
    images stay as they are. The served model shrinks likewise: what it sees differs from training
    by less than 2 of 255 levels on average. Unset: keep the original files."""

    quality: Annotated[Positive, Interval(le=100)] = 95
    """JPEG quality of images that are shrunk."""

    max_image_mpixels: Annotated[Number, Gt(0)] = 100.0
    """Reject images above this many million pixels, by their header."""

    min_image_pixels: Positive = 1
    """Reject images whose shorter side is below this many pixels."""

    @property
    def finds_near_duplicates(self) -> bool:
        """Whether images are compared; only ingest does."""
        return False

    def is_shrunk(self, width: int, height: int) -> bool:
        """Return whether an image of this size, in pixels, will be resized."""
        return self.shrink is not None and min(width, height) > self.shrink

    def check_size(self, width: int, height: int) -> None:
        """Raise `Rejected` if the header states an image size outside of the limits."""
        size = f"{width} x {height} pixels"
        if width * height > self.max_image_mpixels * 1e6:
            reason = f"{size} exceed max_image_mpixels ({self.max_image_mpixels:g})"
            raise Rejected(Category.TOO_LARGE, reason)
        if max(width, height) > MAX_SIDE:
            raise Rejected(Category.TOO_LARGE, f"{size}: a side exceeds {MAX_SIDE}")
        if min(width, height) < self.min_image_pixels:
            reason = f"{size}: a side is below min_image_pixels ({self.min_image_pixels})"
            raise Rejected(Category.TOO_SMALL, reason)


@configuration("ingest")
class FileOptions(ImageOptions):
    """How image files are read, checked and stored."""

    max_image_mib: Annotated[Number, Interval(ge=0.001, le=1024)] = 64.0
    """Reject larger files (MiB) without reading them."""

    threads: Annotated[Positive, Interval(le=1024)] | None = None
    """Shards that one worker writes at the same time. Each has a thread, or, from 10,000 files on,
    a process, as the interpreter lock slows threads down. Unset: one per core."""

    @property
    def workers(self) -> int:
        """Threads of one worker: `threads`, or one per available core."""
        return self.threads or available_cpus()


@configuration("transform")
class TransformConfig:
    """How Transform crops, resizes and stores images."""

    size: Annotated[Positive, Interval(ge=8, le=2048)] | None = None
    """Side of the square images that the model sees, pixels. Unset: where training starts from
    ImageNet's weights, their own, such as 224, or 192 for images below 64 pixels; else 32, 64, 96
    or 224, the first that is at least the typical shorter side of the images, but at most 96 for
    the models cnn and resnet9."""

    fit: Literal["crop", "stretch", "letterbox"] = "crop"
    """How to make an image square. crop: the largest central square, which keeps shapes. stretch:
    the whole image, for objects that reach the edges. letterbox: the whole image in its shape,
    padded with its mean color."""

    storage: Literal["jpeg", "png", "raw"] = "jpeg"
    """How to store images. jpeg: small and fast to read. png: lossless, three times slower to
    decode. raw: pixels, 5 to 10 times larger, for when decoding slows down the accelerator."""

    quality: Annotated[Positive, Interval(le=100)] = 95
    """JPEG quality of the stored images; at 95 the loss is hardly visible."""

    @property
    def seen_size(self) -> int:
        """Side of the images that the model sees, pixels; `size`, once it is set."""
        if self.size is None:
            raise ValueError("transform.size is not set: `resolve` does that")
        return self.size


def read_custom_config(fields: Mapping[str, Any]) -> tuple[TransformConfig, ImageOptions]:
    """Return the configuration of an ImageTransform, and how ingest shrank its images."""
    transform = {
        name: value for name, value in fields.items() if name not in ("ingest", LABEL_VOCABULARY)
    }
    return from_dict(TransformConfig, transform), from_dict(ImageOptions, fields.get("ingest", {}))
