"""Finds the folder of the current model; imports neither TensorFlow nor TFX."""

import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from components.contract.model_files import EXAMPLES_SIGNATURE
from components.contract.properties import LookupInput
from components.storage.folder import is_file, read_bytes, replace_file
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

DIGEST_KEY = "baseline_digest"
"""The execution property with a digest of the baseline: another model may lie in its folder."""

TRAINING_PROPERTY = "training"
"""Property of the lookup on Kubeflow, where it runs before there is a candidate: a digest of what
decides on the candidate, beside its other properties."""

KEY = "training_key"
"""The execution property with a key of all of these; unset in a local run."""

_LOGGER = logging.getLogger(__name__)


def look_up(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Find the baseline among the pushed models."""
    # TFX omits properties that have their default.
    pushed_models = properties.get("pushed_models", "")
    if TRAINING_PROPERTY not in properties:
        candidate = os.path.join(inputs["model"].uri, SERVING_FOLDER)
        found = find_baseline(pushed_models, candidate)
        return {FOUND_KEY: found, DIGEST_KEY: model_digest(found) if found else ""}
    deciding = {name: value for name, value in properties.items() if name != "pushed_models"}
    key = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:32]
    note = _note(pushed_models, key)
    trained = read_bytes(note).decode() if pushed_models and is_file(note) else ""
    return {FOUND_KEY: _newest_other(pushed_models, lambda: trained), KEY: key}


def remember_candidate(pushed_models: str, key: str, candidate: str) -> None:
    """Note what a training of this key has resulted in.

    A later run that takes the model from the cache so finds the same baseline before it has it.
    """
    replace_file(_note(pushed_models, key), model_digest(candidate).encode())


def _note(pushed_models: str, key: str) -> str:
    return os.path.join(os.path.dirname(pushed_models.rstrip("/")), "candidates", key)


def find_baseline(pushed_models: str, candidate: str) -> str:
    """Return the newest version in `pushed_models` other than `candidate`, or ""."""
    return _newest_other(pushed_models, functools.cache(lambda: model_digest(candidate)))


def _newest_other(pushed_models: str, read_digest: Callable[[], str]) -> str:
    for version in whole_versions(pushed_models) if pushed_models else ():
        if reason := _explain_foreign(version):
            _LOGGER.warning("The pushed model %s is no baseline: %s.", version, reason)
        elif model_digest(version) != read_digest():
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
