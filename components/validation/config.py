"""Configuration of validation: when examples are good enough to train on."""

import dataclasses
from typing import Literal

from components.contract.configuration import Fraction, Text, configuration, require

# With a curated schema, which is used as it is, only these apply.
_NOT_IN_SCHEMA = ("schema", "anomalies", "drift")


@configuration("validation")
class ValidationConfig:
    """When examples are good enough to train on."""

    schema: Text | None = None
    """Path or URL of a reviewed schema; start from that of a run, schema.pbtxt among its artifacts.
    Unset: the schema is inferred from the train split."""

    anomalies: Literal["stop", "warn"] = "stop"
    """What to do when examples do not match the schema."""

    drift: Literal["stop", "warn", "off"] = "warn"
    """What to do when the train split differs from the previous run or span, or another split from
    it."""

    max_label_drift: Fraction = 0.1
    """Maximum change of any label's fraction (L-infinity distance). With few images, four standard
    errors if that is more, as chance alone may cause larger changes."""

    max_property_drift: Fraction = 0.3
    """Maximum change of height, width, file size and luminance (Jensen-Shannon divergence). 1 means
    that the histograms have nothing in common. With few images, more where chance may cause it.
    Values below 0.25 cause false alarms where images have few different sizes."""

    def stops(self, kind: Literal["anomaly", "drift"]) -> bool:
        """Return whether a finding of this kind stops the run."""
        return (self.anomalies if kind == "anomaly" else self.drift) == "stop"

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        limits = [
            f"validation.{field.name}"
            for field in dataclasses.fields(self)
            if field.name not in _NOT_IN_SCHEMA and getattr(self, field.name) != field.default
        ]
        require(
            self.schema is None or not limits,
            f"validation.schema and {', '.join(limits)} are both set: the schema file has its own "
            f"limits, so set them there.",
        )
