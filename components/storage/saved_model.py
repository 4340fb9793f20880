"""The folder of pushed models: which versions are whole, and which two models are the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from tfx.dsl.io import fileio

from components.storage.tfx_filesystem import register_object_stores

GRAPH = "saved_model.pb"
WEIGHTS = os.path.join("variables", "variables.index")
"""Checksums of the weights."""


def whole_versions(folder: str) -> Iterator[str]:
    """Yield the paths of the versions in a folder, named by number, the newest first.

    Pusher copies `saved_model.pb` last, so that a version without it is not whole.
    """
    register_object_stores()
    if not fileio.isdir(folder):
        return
    # TensorFlow ends the names of remote folders with a slash.
    names = [name.rstrip("/") for name in fileio.listdir(folder)]
    for name in sorted((name for name in names if name.isdigit()), key=int, reverse=True):
        version = os.path.join(folder, name)
        if fileio.exists(os.path.join(version, GRAPH)):
            yield version


def model_digest(saved_model: str) -> str:
    """Digest the graph and the checksums of the weights, which the variables' index holds."""
    digest = hashlib.sha256()
    for name in (GRAPH, WEIGHTS):
        with fileio.open(os.path.join(saved_model, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()
