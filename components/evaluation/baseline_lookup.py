"""Finds the folder of the current model; imports neither TensorFlow nor TFX."""

import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

from components.contract.errors import ConfigurationError
from components.contract.example import LABEL_VOCABULARY
from components.contract.model_files import EXAMPLES_SIGNATURE
from components.contract.printable import name_some
from components.contract.properties import TRAINING_KEY_PROPERTY, LookupInput
from components.storage.folder import is_file, read_bytes
from components.storage.saved_model import (
    GRAPH,
    SERVING_FOLDER,
    WEIGHTS,
    find_damage,
    list_versions,
    model_digest,
    read_candidate,
    read_rollback,
    whole_versions,
)

FOUND_KEY = "found_baseline"
"""The execution property with the folder of the baseline, or ""."""

DIGEST_KEY = "baseline_digest"
"""The execution property with a digest of the baseline: another model may lie in its folder."""

TRAINING_PROPERTY = "training"
"""Property of the lookup on Kubeflow, where it runs before there is a candidate: a digest of what
decides on the candidate, beside its other properties."""

LOST_KEY = "lost_version"
"""The execution property with the version that the candidate was pushed as, if that is no longer
there: another value than before runs the Pusher again."""

_MOST_NAMED = 5
_LOGGER = logging.getLogger(__name__)


def look_up(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Find the baseline among the pushed models."""
    # TFX omits properties that have their default.
    pushed_models = properties.get("pushed_models", "")
    if TRAINING_PROPERTY not in properties:
        candidate = os.path.join(inputs["model"].uri, SERVING_FOLDER)
        found = find_baseline(pushed_models, candidate)
        return {FOUND_KEY: found, DIGEST_KEY: model_digest(found) if found else ""}
    others = ("pushed_models", "code_digest")
    deciding = {name: value for name, value in properties.items() if name not in others}
    key = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:32]
    trained, version = read_candidate(pushed_models, key) if pushed_models else ("", "")
    is_lost = version and find_damage(os.path.join(pushed_models, version))
    return {
        FOUND_KEY: _newest_other(pushed_models, lambda: trained),
        LOST_KEY: version if is_lost else "",
        TRAINING_KEY_PROPERTY: key,
    }


def find_baseline(pushed_models: str, candidate: str) -> str:
    """Return the newest version in `pushed_models` other than `candidate`, or "".

    It is none that a rollback has withdrawn.
    """
    return _newest_other(pushed_models, functools.cache(lambda: model_digest(candidate)))


def _newest_other(pushed_models: str, read_digest: Callable[[], str]) -> str:
    withdrawn: set[str] = set()
    for version in whole_versions(pushed_models) if pushed_models else ():
        if rollback := read_rollback(version):
            withdrawn.update(rollback.withdrawn)
        if reason := _explain_foreign(version):
            _LOGGER.warning("The pushed model %s is no baseline: %s.", version, reason)
        elif model_digest(version) not in {read_digest(), *withdrawn}:
            return version
    return ""


def require_same_task(
    labels: Collection[str], known: Collection[str], version: str, *, others: str
) -> None:
    """Raise `ConfigurationError` if images have no label in common with the current model.

    Args:
        labels: those of the images.
        known: those of the model; empty if they are unknown.
        version: path of the model.
        others: how to keep both, a clause.
    """
    if known and not {*known} & {*labels}:
        folder, name = os.path.split(version)
        raise ConfigurationError(
            f"The images have no label in common with the current model, version {name} in "
            f"{folder}, which knows {name_some(sorted(known), _MOST_NAMED)}: {others}, or replace "
            "the model with --new_task."
        )


def read_labels(version: str) -> list[str]:
    """Return the labels of a pushed model; [] for one that was not trained here."""
    path = os.path.join(version, "assets", LABEL_VOCABULARY)
    return read_bytes(path).decode().removesuffix("\n").split("\n") if is_file(path) else []


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
