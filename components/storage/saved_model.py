"""Find the complete versions in a folder of pushed models, and compare models."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from components.contract.printable import read_number
from components.storage.folder import is_file, list_folders, read_bytes

GRAPH = "saved_model.pb"
WEIGHTS = os.path.join("variables", "variables.index")
"""Checksums of the weights."""

IDENTITY = os.path.join("assets.extra", "graph.sha256")
"""Digest of what the graph computes."""


def whole_versions(folder: str) -> Iterator[str]:
    """Yield the paths of the complete versions in a folder, newest first.

    Versions are named by number. Pusher copies `saved_model.pb` last, so a version without it is
    incomplete.

    Raises:
        StorageError: the folder cannot be listed or read.
    """
    numbers = {name: read_number(name) for name in list_folders(folder)}
    names = [name for name, number in numbers.items() if number is not None]
    for name in sorted(names, key=int, reverse=True):
        version = os.path.join(folder, name)
        if is_file(os.path.join(version, GRAPH)):
            yield version


def model_digest(saved_model: str) -> str:
    """Digest what a model computes: its graph, and the checksums of its weights.

    Models of earlier versions have no identity file. For them the bytes of the graph count, which
    differ between two exports of the same model.
    """
    digest = hashlib.sha256()
    identity = os.path.join(saved_model, IDENTITY)
    graph = identity if is_file(identity) else os.path.join(saved_model, GRAPH)
    for path in (graph, os.path.join(saved_model, WEIGHTS)):
        digest.update(read_bytes(path))
    return digest.hexdigest()
