"""Configuration of Transform: the one form that all images are brought to."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require
from components.contract.kinds import check_types

LABEL_VOCABULARY = "labels"
"""Name of the label vocabulary in the transform graph."""


@dataclass(frozen=True)
class TransformConfig:
    """How Transform brings images to one form."""

    size: int | None = None
    """Side of the square images that the model sees, pixels. Unset: the local runner takes 32,
    64, 96 or 224, the first not below the usual shorter side of the images, but at most 96 for
    the model cnn."""

    fit: Literal["crop", "stretch", "letterbox"] = "crop"
    """crop: the largest central square, which keeps shapes. stretch: the whole image, for objects
    that reach the edges. letterbox: the whole image in its shape, padded with its mean color."""

    margin: int = 0
    """Pixels by which stored images are larger than the model sees them, 0 to 256: training takes
    random crops of them, evaluation and serving the central crop."""

    storage: Literal["jpeg", "png", "raw", "originals"] = "jpeg"
    """jpeg: small and fast to read. png: lossless, three times slower to decode. raw: pixels, 5 to
    10 times larger, for when decoding slows down the accelerator. originals: training images at
    full resolution, from which `augmentation.min_crop_area` takes new random crops in every epoch;
    reading takes several times as long. Other splits are stored as jpeg."""

    quality: int = 95
    """JPEG quality of the stored images, 1 to 100; at 95 the loss is hardly visible."""

    chroma: Literal["full", "half"] = "full"
    """Chroma resolution of stored JPEGs. half (4:2:0): a fifth smaller and faster to decode. full:
    keeps color edges sharp, which matters most in small images."""

    @property
    def seen_size(self) -> int:
        """Side of the images that the model sees, pixels; `size`, once it is set."""
        if self.size is None:
            raise ValueError("transform.size is not set: `resolve` does that")
        return self.size

    @property
    def stored_size(self) -> int:
        """Side of the stored images, pixels."""
        return self.seen_size + self.margin

    def without_margin(self) -> TransformConfig:
        """Return the form of the same stored images seen whole."""
        return dataclasses.replace(self, size=self.stored_size, margin=0)

    def __post_init__(self) -> None:
        """Validate all fields."""
        check_types(self, "transform")
        require(
            self.size is None or 8 <= self.size <= 2048,
            f"transform.size is {self.size}: it must be from 8 to 2048 pixels.",
        )
        require(
            0 <= self.margin <= 256,
            f"transform.margin is {self.margin}: it must be from 0 to 256 pixels.",
        )
        require(
            self.storage != "originals" or not self.margin,
            f"transform.margin is {self.margin}, but transform.storage 'originals' does not resize "
            f"images: leave transform.margin at 0.",
        )
        require(
            self.storage != "originals" or self.fit != "letterbox",
            "transform.fit is 'letterbox', but crops of transform.storage 'originals' have no "
            "bars: choose transform.fit crop or stretch.",
        )
        require(
            1 <= self.quality <= 100,
            f"transform.quality is {self.quality}: it must be from 1 to 100.",
        )
