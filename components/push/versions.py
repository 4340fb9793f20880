"""How a model becomes a version: whole or not at all, and once, despite kills and other runs."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator

from tfx.dsl.io import fileio
from tfx.utils import io_utils

from components.contract.kinds import read_number
from components.storage.artifact_files import on_disk
from components.storage.lock import locked
from components.storage.saved_model import GRAPH, WEIGHTS, model_digest, whole_versions

# Model servers look for numbers only.
_STAGED = ".unfinished"


def push_model(model: str, folder: str) -> str:
    """Return the path of the version in `folder` that serves `model`; make one if none does.

    The newest version stays the newest when it holds the same model already.

    Args:
        model: folder of the SavedModel.
        folder: of the versions, a path or URL.
    """
    with _alone(folder):
        newest = next(whole_versions(folder), None)
        if newest and model_digest(newest) == model_digest(model):
            return newest
        if on_disk(folder):
            return _copy_and_rename(model, folder)
        return _copy_in_order(model, folder)


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Keep other processes from pushing to the folder; stores have nothing to do so by."""
    if not on_disk(folder):
        yield
        return
    os.makedirs(folder, exist_ok=True)
    with locked(f"{folder.rstrip('/')}.lock", folder, say=logging.warning):
        yield


def _copy_and_rename(model: str, folder: str) -> str:
    """Copy to where nobody looks, and give the version its name in one step."""
    staged = os.path.join(folder, _STAGED)
    if fileio.exists(staged):
        fileio.rmtree(staged)
    io_utils.copy_dir(model, staged)
    version = os.path.join(folder, str(_next_number(_numbers(folder))))
    os.rename(staged, version)
    return version


def _copy_in_order(model: str, folder: str) -> str:
    """Copy to a store, which renames nothing in one step: a version without its graph is not whole.

    The checksums of the weights go first: by them an unfinished copy of this model is found again.
    """
    version = os.path.join(folder, _find_unfinished(model, folder))
    for path in sorted(_list_files(model), key=lambda path: (path != WEIGHTS, path == GRAPH)):
        source, target = (os.path.join(root, path) for root in (model, version))
        io_utils.copy_file(source, target, overwrite=True)
    return version


def _list_files(folder: str) -> Iterator[str]:
    """Yield the paths of all files below a folder, relative to it."""
    for found, _, names in fileio.walk(folder):
        below = found[len(folder) :].strip("/")
        yield from (os.path.join(below, name) for name in names)


def _find_unfinished(model: str, folder: str) -> str:
    """Return the name of an unfinished copy of the model if it is the newest, else a new one."""
    numbers = _numbers(folder)
    newest = str(max(numbers, default=0))
    weights, graph = (os.path.join(folder, newest, name) for name in (WEIGHTS, GRAPH))
    unfinished = fileio.exists(weights) and not fileio.exists(graph)
    if unfinished and _read(weights) == _read(os.path.join(model, WEIGHTS)):
        return newest
    return str(_next_number(numbers))


def _read(path: str) -> bytes:
    with fileio.open(path, "rb") as file:
        content: bytes = file.read()
    return content


def _numbers(folder: str) -> list[int]:
    """Return the numbers of all versions, whole or not."""
    names = fileio.listdir(folder) if fileio.isdir(folder) else []
    numbers = (read_number(name.rstrip("/")) for name in names)
    return [number for number in numbers if number is not None]


def _next_number(numbers: list[int]) -> int:
    """Return the time, as TFX does, but above all others, as servers take the largest."""
    return max(int(time.time()), max(numbers, default=0) + 1)
