"""Configuration of Transform, which crops, resizes and stores images."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Interval

from components.contract.configuration import Count, Positive, configuration, from_dict, require
from components.images.options import ImageOptions

LABEL_VOCABULARY = "labels"
"""Name of the label vocabulary in the transform graph."""


@configuration("transform")
class TransformConfig:
    """How Transform crops, resizes and stores images."""

    size: Annotated[Positive, Interval(ge=8, le=2048)] | None = None
    """Side of the square images that the model sees, pixels. Unset: the local runner chooses 32,
    64, 96 or 224, the first that is at least the typical shorter side of the images, but at most 96
    for the model cnn."""

    fit: Literal["crop", "stretch", "letterbox"] = "crop"
    """crop: the largest central square, which keeps shapes. stretch: the whole image, for objects
    that reach the edges. letterbox: the whole image in its shape, padded with its mean color."""

    margin: Annotated[Count, Interval(le=256)] = 0
    """Pixels by which stored images are larger than the model sees them: training takes random
    crops of them, evaluation and serving the central crop."""

    storage: Literal["jpeg", "png", "raw", "originals"] = "jpeg"
    """jpeg: small and fast to read. png: lossless, three times slower to decode. raw: pixels, 5 to
    10 times larger, for when decoding slows down the accelerator. originals: training images at
    full resolution, from which `augmentation.min_crop_area` takes new random crops in every epoch;
    reading takes several times as long. Other splits are stored as jpeg."""

    quality: Annotated[Positive, Interval(le=100)] = 95
    """JPEG quality of the stored images; at 95 the loss is hardly visible."""

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
        """Return the configuration of the same stored images seen whole."""
        return dataclasses.replace(self, size=self.stored_size, margin=0)

    def __post_init__(self) -> None:
        """Check the fields against each other."""
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


def read_custom_config(fields: Mapping[str, Any]) -> tuple[TransformConfig, ImageOptions]:
    """Return the configuration of an ImageTransform, and how ingest shrank its images."""
    own = {name: value for name, value in fields.items() if name != "ingest"}
    return from_dict(TransformConfig, own), from_dict(ImageOptions, fields.get("ingest", {}))
