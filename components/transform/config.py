"""Configuration of Transform, which crops, resizes and stores images."""

from collections.abc import Mapping
from typing import Any

from components.contract.configuration import from_dict
from components.images.options import ImageOptions, TransformConfig

__all__ = ["LABEL_VOCABULARY", "TransformConfig", "read_custom_config"]

LABEL_VOCABULARY = "labels"
"""Name of the label vocabulary in the transform graph."""


def read_custom_config(fields: Mapping[str, Any]) -> tuple[TransformConfig, ImageOptions]:
    """Return the configuration of an ImageTransform, and how ingest shrank its images."""
    own = {
        name: value for name, value in fields.items() if name not in ("ingest", LABEL_VOCABULARY)
    }
    return from_dict(TransformConfig, own), from_dict(ImageOptions, fields.get("ingest", {}))
