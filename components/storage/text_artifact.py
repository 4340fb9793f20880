"""Artifacts that are one text: a file on Kubeflow, a file in a folder in a local run."""

from __future__ import annotations

import os

from tfx.dsl.io import fileio

from components.storage.tfx_filesystem import register_object_stores

# Name the texts in a local run, where an artifact is a folder.
PAGE_FILE = "report.html"
CARD_FILE = "model_card.md"


def write_text(text: str, uri: str, name: str) -> None:
    """Write to the file `uri`, or as `name` into it where TFX has made it a folder: a local run."""
    path = _text_path(uri, name)
    fileio.makedirs(os.path.dirname(path))
    with fileio.open(path, "w") as file:
        file.write(text)


def read_text(uri: str, name: str) -> str:
    """Read what `write_text` has written."""
    with fileio.open(_text_path(uri, name)) as file:
        return str(file.read())


def _text_path(uri: str, name: str) -> str:
    register_object_stores()
    return os.path.join(uri, name) if fileio.isdir(uri) else uri
