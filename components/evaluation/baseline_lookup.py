"""Finds the folder of the model in use; imports neither TensorFlow nor TFX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from components.contract.properties import LookupInput
from components.storage.saved_model import model_digest, whole_versions

FOUND_KEY = "found_baseline"
"""The execution property with the folder of the baseline, or ""."""

# Where TFX's Trainer puts the model within its artifact.
_SERVING = "Format-Serving"


def look_up(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Find the baseline among the pushed models."""
    candidate = os.path.join(inputs["model"].uri, _SERVING)
    # TFX omits properties that have their default.
    return {FOUND_KEY: find_baseline(properties.get("pushed_models", ""), candidate)}


def find_baseline(pushed_models: str, candidate: str) -> str:
    """Return the newest version in `pushed_models` other than `candidate`, or ""."""
    versions = list(whole_versions(pushed_models)) if pushed_models else []
    same = model_digest(candidate) if versions else ""
    return next((version for version in versions if model_digest(version) != same), "")
