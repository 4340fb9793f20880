"""How Transform brings images to one form: every choice, its default and the reason for it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require
from components.contract.kinds import check_types

LABEL_VOCABULARY = "labels"
"""Name of the vocabulary in the transform graph: the label of each label id."""


@dataclass(frozen=True)
class TransformConfig:
    """How Transform brings images to one form."""

    size: int | None = None
    """Side of the square images that the model sees, pixels. Unset: the local runner takes 32,
    64, 96 or 224, the first not below the usual shorter side of the images, but at most 96 for
    the model cnn."""

    fit: Literal["crop", "stretch", "letterbox"] = "crop"
    """crop: the largest central square, so that shapes stay true. stretch: the whole image, for
    objects that reach the edges. letterbox: the whole image with its shape, and bars of its mean
    colour beside it."""

    margin: int = 0
    """Store images this many pixels larger than the model sees them: training then cuts a window
    at random, evaluation and serving cut the one in the middle. 0 to 256."""

    storage: Literal["jpeg", "png", "raw", "originals"] = "jpeg"
    """jpeg: small, and fast to read. png: without loss, three times slower to decode. raw: the
    pixels, 5 to 10 times larger; for when decoding holds up the accelerator. originals: training
    images as they are, out of which `augmentation.min_crop_area` cuts windows anew in every epoch,
    in all their detail; reading takes several times as long. Other splits are stored as jpeg."""

    quality: int = 95
    """JPEG quality of the stored images, 1 to 100; at 95 the loss is hard to see."""

    chroma: Literal["full", "half"] = "full"
    """Resolution of the colours of stored JPEGs. half (4:2:0): a fifth smaller and faster to
    decode; full keeps the edges of colours sharp, which matters most in small images."""

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
        """Return what describes the same stored images, all of which the model sees."""
        return dataclasses.replace(self, size=self.stored_size, margin=0)

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
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
            f"transform.margin is {self.margin}, and transform.storage 'originals', which are not "
            f"brought to one size: leave transform.margin at 0.",
        )
        require(
            self.storage != "originals" or self.fit != "letterbox",
            "transform.fit is 'letterbox', and transform.storage 'originals', out of which windows "
            "without bars are cut: choose transform.fit crop or stretch.",
        )
        require(
            1 <= self.quality <= 100,
            f"transform.quality is {self.quality}: it must be from 1 to 100.",
        )
