"""What examples must be like for a run to go on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require
from components.contract.example import FORMATS
from components.contract.kinds import check_types

_FRACTIONS = ("max_label_drift", "max_property_drift", "min_supported_images")
_COUNTS = ("max_image_bytes", "min_side", "max_side")


@dataclass(frozen=True)
class ValidationConfig:
    """When examples are good enough to be trained on."""

    schema: str | None = None
    """Path or URL of the text file of a schema that a person has reviewed; `local_runner.py
    schema` writes one to begin with. Unset: the schema is inferred from the train split."""

    anomalies: Literal["stop", "warn"] = "stop"
    """What to do when examples do not fit the schema: stop the run, or go on with a warning."""

    drift: Literal["stop", "warn", "off"] = "warn"
    """What to do when the train split differs from that of the run or span before, or another
    split from the train split: stop the run, go on with a warning, or do not compare."""

    max_label_drift: float = 0.1
    """How much the fraction of any label may change, 0 to 1 (L-infinity distance); with few
    images, four standard errors, as chance alone may cause a larger change."""

    max_property_drift: float = 0.3
    """How much height, width, file size and luminance may change, 0 to 1 (Jensen-Shannon
    divergence of their histograms; 1: nothing in common); with few images, what chance alone may
    cause. Values below 0.25 cause false alarms where images have few different sizes."""

    min_supported_images: float = 1.0
    """Least fraction of the images, 0 to 1, whose first bytes are those of a JPEG, PNG, GIF or
    BMP; in splits of at least 100 images, as TensorFlow Data Validation counts none in smaller
    ones."""

    max_image_bytes: int | None = None
    """Size of the largest allowed image in bytes, as ingest stores it."""

    min_side: int | None = None
    """Least allowed height and width of an image in pixels."""

    max_side: int | None = None
    """Largest allowed height and width of an image in pixels."""

    formats: list[str] | None = None
    """Allowed formats, as ingest stores them: bmp, gif, jpeg, png. Unset: all of these."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "validation")
        for name in _FRACTIONS:
            value = getattr(self, name)
            require(0 <= value <= 1, f"validation.{name} is {value}: it must be from 0 to 1.")
        for name in _COUNTS:
            value = getattr(self, name)
            require(
                value is None or value >= 1, f"validation.{name} is {value}: it must be at least 1."
            )
        require(
            (self.min_side or 0) <= (self.max_side or float("inf")),
            f"validation.min_side is {self.min_side}, above validation.max_side, {self.max_side}.",
        )
        require(
            self.formats is None or (bool(self.formats) and set(self.formats) <= set(FORMATS)),
            f"validation.formats is {self.formats}: name some of {', '.join(FORMATS)}.",
        )
        self._check_alone()

    def _check_alone(self) -> None:
        """Refuse limits beside a curated schema, which is used exactly as it is."""
        shaping = [
            field.name
            for field in dataclasses.fields(self)
            if field.name not in _NOT_IN_SCHEMA and getattr(self, field.name) != field.default
        ]
        require(
            self.schema is None or not shaping,
            f"validation.schema and {', '.join(f'validation.{name}' for name in shaping)} are both "
            f"set: a schema file has its own limits, so write them there.",
        )


_NOT_IN_SCHEMA = ("schema", "anomalies", "drift")
