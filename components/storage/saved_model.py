"""Find the complete versions in a folder of pushed models, and compare models."""

import functools
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from components.contract.artifact_files import on_disk
from components.contract.errors import DataError
from components.contract.printable import read_number
from components.storage.folder import (
    explaining_errors,
    is_file,
    list_folders,
    read_bytes,
    replace_file,
)
from components.storage.folder_listing import find_files

SERVING_FOLDER = "Format-Serving"
"""Where TFX has the SavedModel, below a Model artifact."""

GRAPH = "saved_model.pb"
_WEIGHTS = "variables/variables."
WEIGHTS = f"{_WEIGHTS}index"
"""Checksums of the weights."""

IDENTITY = os.path.join("assets.extra", "graph.sha256")
"""Digest of what the graph follows from: labels, options and code. The bytes of two exports of the
same graph differ, as TensorFlow numbers what is in it."""

FILES = os.path.join("assets.extra", "files.json")
"""Path → bytes and SHA-256 of all other files of a pushed model, as Pusher copied them."""

ROLLBACK = os.path.join("assets.extra", "rollback.json")
"""In a version that is an earlier one again: which one, and what it replaced."""

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rollback:
    """Why a version holds the model of an earlier one."""

    restored: str
    """Name of the version that was pushed by a run."""
    withdrawn: Mapping[str, str]
    """Digest of each model that is not pushed again → its version."""


def read_rollback(version: str) -> Rollback | None:
    """Read why a version, a path or URL, was pushed again; None if a run pushed its model."""
    path = os.path.join(version, ROLLBACK)
    if not is_file(path):
        return None
    try:
        fields = json.loads(read_bytes(path))
        return Rollback(str(fields["restored"]), dict(fields["withdrawn"]))
    except (ValueError, TypeError, LookupError):
        _warn(version, f"{ROLLBACK} is damaged")
        return None


def original_version(version: str) -> str:
    """Return the name of the version in which a run first pushed the model of another version."""
    rollback = read_rollback(version)
    return rollback.restored if rollback else os.path.basename(version)


def whole_versions(folder: str) -> Iterator[str]:
    """Yield the paths of the complete versions in a folder, newest first.

    Versions are named by number. Incomplete and damaged ones are left out, with a warning.
    """
    for version in list_versions(folder):
        if damage := find_damage(version):
            _warn(version, damage)
        else:
            yield version


def list_versions(folder: str) -> list[str]:
    """Return the paths of all versions in a folder, newest first, without a look at their files."""
    numbers = {name: read_number(name) for name in list_folders(folder)}
    names = [name for name, number in numbers.items() if number is not None]
    return [os.path.join(folder, name) for name in sorted(names, key=int, reverse=True)]


@functools.cache
def _warn(version: str, damage: str) -> None:
    """Warn once, however often a server looks for versions."""
    _LOGGER.warning("The pushed model %s is left out: %s.", version, damage)


def find_damage(version: str) -> str:
    """Say, as a clause, what is wrong with the files of a pushed model; "" if nothing is.

    Models that were not pushed by Pusher have no record of their files: only their names count.
    """
    try:
        files = {file.path: file for file in find_files(version)}
    except DataError:
        return "the folder is missing"
    if GRAPH not in files:
        # Pusher copies it last.
        return f"{GRAPH} is missing"
    try:
        record = json.loads(read_bytes(os.path.join(version, FILES))) if FILES in files else {}
        recorded = [(name, int(size), digest) for name, (size, digest) in record.items()]
    except (ValueError, TypeError, AttributeError):
        return f"{FILES} is damaged"
    for name, size, digest in recorded:
        if name not in files:
            return f"{name} is missing"
        if files[name].size != size:
            return f"{name} has {files[name].size:,} bytes instead of {size:,}"
        # Object stores verify checksums themselves.
        path = os.path.join(version, name)
        if on_disk(path) and _digest_file(path, files[name].version) != digest:
            return f"the content of {name} has changed"
    weights = [name for name in files if name.startswith(_WEIGHTS)]
    if len(weights) == 1:
        return f"the weights that belong to {weights[0]} are missing"
    return ""


@functools.cache
def _digest_file(path: str, version: str) -> str:
    """Digest a file once for each version of it."""
    with explaining_errors("read", path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def note_candidate(pushed_models: str, key: str, candidate: str, version: str) -> None:
    """Note what a training of this key has resulted in, and its version if it was pushed.

    A later run that takes the model from the cache so finds the same baseline before it has it, and
    whether the version is still there.
    """
    content = f"{model_digest(candidate)} {version}"
    replace_file(_candidate_note(pushed_models, key), content.encode())


def read_candidate(pushed_models: str, key: str) -> tuple[str, str]:
    """Return the digest and the version that `note_candidate` has noted; "" if there are none."""
    note = _candidate_note(pushed_models, key)
    digest, _, version = read_bytes(note).decode().partition(" ") if is_file(note) else ("", "", "")
    return digest, version


def _candidate_note(pushed_models: str, key: str) -> str:
    return os.path.join(os.path.dirname(pushed_models.rstrip("/")), "candidates", key)


def model_digest(saved_model: str) -> str:
    """Digest what a model computes: what its graph follows from, and the checksums of its weights.

    Without a file that says the former, the bytes of the graph count.
    """
    digest = hashlib.sha256()
    identity = os.path.join(saved_model, IDENTITY)
    graph = identity if is_file(identity) else os.path.join(saved_model, GRAPH)
    weights = os.path.join(saved_model, WEIGHTS)
    # A model that was not trained here may have its weights in the graph.
    for path in (graph, weights) if is_file(weights) else (graph,):
        digest.update(read_bytes(path))
    return digest.hexdigest()
