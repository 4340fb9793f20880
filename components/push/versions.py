"""Makes versions of pushed models, atomically: a new model, or an earlier version again."""

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping

from components.contract.artifact_files import on_disk
from components.host.lock import LOCK_FILE, locked
from components.storage.folder import is_file, read_bytes, replace_file
from components.storage.folder_listing import find_files
from components.storage.saved_model import (
    FILES,
    GRAPH,
    ROLLBACK,
    WEIGHTS,
    list_versions,
    model_digest,
    read_rollback,
    whole_versions,
)
from components.storage.transfer import copy_file, copy_folder, remove_folder

# Model servers ignore names that are not numbers.
_STAGED = ".unfinished"


class WithdrawnError(Exception):
    """A rollback has withdrawn this model."""


def push_model(model: str, folder: str) -> str:
    """Push `model` to `folder` unless it is the newest version; return the path of the version.

    Raises `WithdrawnError` if the newest version is a rollback from this model.
    """
    with _exclusive(folder):
        newest = next(whole_versions(folder), None)
        digest = model_digest(model)
        if newest and model_digest(newest) == digest:
            return newest
        rollback = read_rollback(newest) if newest else None
        if rollback and digest in rollback.withdrawn:
            raise WithdrawnError(
                f"The model is that of version {rollback.withdrawn[digest]}, which was rolled back "
                f"to version {rollback.restored}: it is not pushed again."
            )
        return _add_version(model, folder, "")


def restore(version: str, *, restored: str, withdrawn: Mapping[str, str]) -> str:
    """Push an earlier version again, as the newest one; return its path.

    `restored` is the name of the version that was trained and pushed first, `withdrawn` the digest
    of each model that must not be pushed again → its version.
    """
    folder = os.path.dirname(version)
    note = json.dumps({"restored": restored, "withdrawn": dict(withdrawn)}, indent=2)
    with _exclusive(folder):
        return _add_version(version, folder, note)


@contextlib.contextmanager
def _exclusive(folder: str) -> Iterator[None]:
    """Keep other processes from pushing to a local folder; object stores have no locks."""
    if not on_disk(folder):
        yield
        return
    os.makedirs(folder, exist_ok=True)
    with locked(os.path.join(folder, LOCK_FILE), folder, say=logging.warning):
        yield


def _add_version(model: str, folder: str, rollback: str) -> str:
    """Copy a model to a new version, with the note of a `rollback`, if it is one."""
    copy = _copy_and_rename if on_disk(folder) else _copy_in_order
    return copy(model, folder, rollback)


def _copy_and_rename(model: str, folder: str, rollback: str) -> str:
    """Copy to a hidden folder, then rename it to the version."""
    staged = os.path.join(folder, _STAGED)
    remove_folder(staged)
    copy_folder(model, staged)
    _write_notes(model, staged, rollback)
    version = _next_version(folder)
    os.rename(staged, version)
    return version


def _copy_in_order(model: str, folder: str, rollback: str) -> str:
    """Copy to a store, which has no atomic rename; a version without its graph is incomplete.

    The checksums of the weights are copied first, to recognize an unfinished copy of this model.
    """
    version = _find_unfinished(model, folder)
    for path in sorted(_list_files(model), key=lambda path: (path != WEIGHTS, path == GRAPH)):
        source, target = (os.path.join(root, path) for root in (model, version))
        if path == GRAPH:
            _write_notes(model, version, rollback)
        copy_file(source, target)
    return version


def _write_notes(model: str, version: str, rollback: str) -> None:
    """Record the files of the model in its copy, so that later damage is noticed."""
    if rollback:
        # An earlier version has such a record, without its card: later runs may replace that.
        replace_file(os.path.join(version, ROLLBACK), rollback.encode())
        return
    recorded = {}
    for path in _list_files(model):
        if path != FILES:
            content = read_bytes(os.path.join(model, path))
            recorded[path] = (len(content), hashlib.sha256(content).hexdigest())
    replace_file(os.path.join(version, FILES), json.dumps(recorded).encode())


def _list_files(folder: str) -> list[str]:
    """Return the sorted relative paths of all files in a folder."""
    return [file.path for file in find_files(folder) if not file.problem]


def _find_unfinished(model: str, folder: str) -> str:
    """Return the newest version if it is an unfinished copy of the model, else a new version."""
    newest = next(iter(list_versions(folder)), "")
    weights, graph = (os.path.join(newest, name) for name in (WEIGHTS, GRAPH))
    unfinished = newest and is_file(weights) and not is_file(graph)
    ours = os.path.join(model, WEIGHTS)
    if unfinished and read_bytes(weights) == read_bytes(ours):
        return newest
    return _next_version(folder)


def _next_version(folder: str) -> str:
    """Return a path whose name is the Unix time, as TFX's, or larger than those of all versions."""
    newest = next(iter(list_versions(folder)), "0")
    return os.path.join(folder, str(max(int(time.time()), int(os.path.basename(newest)) + 1)))
