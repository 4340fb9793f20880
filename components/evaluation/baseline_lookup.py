"""Finds the folder of the current model; imports neither TensorFlow nor TFX."""

import logging
import os
from collections.abc import Mapping
from typing import Any

from components.contract.model_files import EXAMPLES_SIGNATURE
from components.contract.properties import LookupInput
from components.storage.folder import is_file, read_bytes
from components.storage.saved_model import (
    GRAPH,
    SERVING_FOLDER,
    WEIGHTS,
    find_damage,
    list_versions,
    model_digest,
    whole_versions,
)

FOUND_KEY = "found_baseline"
"""The execution property with the folder of the baseline, or ""."""

_LOGGER = logging.getLogger(__name__)


def look_up(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Find the baseline among the pushed models."""
    candidate = os.path.join(inputs["model"].uri, SERVING_FOLDER)
    # TFX omits properties that have their default.
    return {FOUND_KEY: find_baseline(properties.get("pushed_models", ""), candidate)}


def find_baseline(pushed_models: str, candidate: str) -> str:
    """Return the newest version in `pushed_models` other than `candidate`, or ""."""
    ours = ""
    for version in whole_versions(pushed_models) if pushed_models else ():
        if reason := _explain_foreign(version):
            _LOGGER.warning("The pushed model %s is no baseline: %s.", version, reason)
            continue
        ours = ours or model_digest(candidate)
        if model_digest(version) != ours:
            return version
    return ""


def find_unusable(pushed_models: str) -> dict[str, str]:
    """Return path → reason, a clause, of the versions newer than the newest usable one."""
    unusable = {}
    for version in list_versions(pushed_models):
        if not (reason := find_damage(version) or _explain_foreign(version)):
            break
        unusable[version] = reason
    return unusable


def _explain_foreign(version: str) -> str:
    """Say, as a clause, why the Evaluator cannot run a model that is whole; "" if it can."""
    if not is_file(os.path.join(version, WEIGHTS)):
        return f"{WEIGHTS} is missing"
    known = EXAMPLES_SIGNATURE.encode() in read_bytes(os.path.join(version, GRAPH))
    return "" if known else f"it has no signature {EXAMPLES_SIGNATURE}"
