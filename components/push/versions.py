"""Push a model as a version: atomically, and only once, despite kills and concurrent runs."""

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator

from tfx.dsl.io import fileio
from tfx.utils import io_utils

from components.contract.printable import read_number
from components.storage.artifact_files import on_disk
from components.storage.lock import locked
from components.storage.saved_model import FILES, GRAPH, WEIGHTS, model_digest, whole_versions

# Model servers ignore names that are not numbers.
_STAGED = ".unfinished"


def push_model(model: str, folder: str) -> str:
    """Push `model` to `folder` unless it is the newest version; return the path of the version.

    Args:
        model: folder of the SavedModel.
        folder: folder of the versions, a path or URL.
    """
    with _exclusive(folder):
        newest = next(whole_versions(folder), None)
        if newest and model_digest(newest) == model_digest(model):
            return newest
        if on_disk(folder):
            return _copy_and_rename(model, folder)
        return _copy_in_order(model, folder)


@contextlib.contextmanager
def _exclusive(folder: str) -> Iterator[None]:
    """Keep other processes from pushing to a local folder; object stores have no locks."""
    if not on_disk(folder):
        yield
        return
    os.makedirs(folder, exist_ok=True)
    with locked(f"{folder.rstrip('/')}.lock", folder, say=logging.warning):
        yield


def _copy_and_rename(model: str, folder: str) -> str:
    """Copy to a hidden folder, then rename it to the version."""
    staged = os.path.join(folder, _STAGED)
    if fileio.exists(staged):
        fileio.rmtree(staged)
    io_utils.copy_dir(model, staged)
    _write_files(model, staged)
    version = os.path.join(folder, str(_next_number(_numbers(folder))))
    os.rename(staged, version)
    return version


def _copy_in_order(model: str, folder: str) -> str:
    """Copy to a store, which has no atomic rename; a version without its graph is incomplete.

    The checksums of the weights are copied first, to recognize an unfinished copy of this model.
    """
    version = os.path.join(folder, _find_unfinished(model, folder))
    for path in sorted(_list_files(model), key=lambda path: (path != WEIGHTS, path == GRAPH)):
        source, target = (os.path.join(root, path) for root in (model, version))
        if path == GRAPH:
            _write_files(model, version)
        io_utils.copy_file(source, target, overwrite=True)
    return version


def _write_files(model: str, version: str) -> None:
    """Record the files of the model in its copy, so that later damage is noticed."""
    recorded = {}
    for path in sorted(_list_files(model)):
        if path != FILES:
            content = io_utils.read_bytes_file(os.path.join(model, path))
            recorded[path] = (len(content), hashlib.sha256(content).hexdigest())
    io_utils.write_string_file(os.path.join(version, FILES), json.dumps(recorded))


def _list_files(folder: str) -> Iterator[str]:
    """Yield the relative paths of all files in a folder."""
    for found, _, names in fileio.walk(folder):
        below = found[len(folder) :].strip("/")
        yield from (os.path.join(below, name) for name in names)


def _find_unfinished(model: str, folder: str) -> str:
    """Return the newest version if it is an unfinished copy of the model, else a new version."""
    numbers = _numbers(folder)
    newest = str(max(numbers, default=0))
    weights, graph = (os.path.join(folder, newest, name) for name in (WEIGHTS, GRAPH))
    unfinished = fileio.exists(weights) and not fileio.exists(graph)
    ours = os.path.join(model, WEIGHTS)
    if unfinished and io_utils.read_bytes_file(weights) == io_utils.read_bytes_file(ours):
        return newest
    return str(_next_number(numbers))


def _numbers(folder: str) -> list[int]:
    """Return the numbers of all versions, including incomplete ones."""
    names = fileio.listdir(folder) if fileio.isdir(folder) else []
    numbers = (read_number(name.rstrip("/")) for name in names)
    return [number for number in numbers if number is not None]


def _next_number(numbers: list[int]) -> int:
    """Return the Unix time, as TFX does, or more, because servers take the largest number."""
    return max(int(time.time()), max(numbers, default=0) + 1)
