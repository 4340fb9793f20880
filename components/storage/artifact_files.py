"""Files of artifacts: on disk without TensorFlow, which takes seconds to load; else with it."""

from __future__ import annotations

import os
import shutil
from typing import Any


def on_disk(path: str) -> bool:
    """Say whether `path` is one of this machine's, not a URL."""
    return "://" not in path


def open_file(path: str, mode: str = "r") -> Any:
    """Open a file; text is UTF-8.

    Raises:
        FileNotFoundError: there is no such file to read.
    """
    if on_disk(path):
        return open(path, mode, encoding=None if "b" in mode else "utf-8")
    gfile = _gfile()
    if mode.startswith("r") and not gfile.exists(path):
        raise FileNotFoundError(path)
    return gfile.GFile(path, mode)


def make_folders(path: str) -> None:
    """Create a folder and those above it, where they are not there yet."""
    if on_disk(path):
        os.makedirs(path, exist_ok=True)
    else:
        _gfile().makedirs(path)


def move(source: str, target: str) -> None:
    """Rename a file; on disk at once, so that `target` is either the old file or the new one."""
    if on_disk(source):
        os.replace(source, target)
    else:
        _gfile().rename(source, target, overwrite=True)


def list_names(folder: str) -> list[str]:
    """Return the names in a folder, sorted; none if it does not exist."""
    if on_disk(folder):
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    gfile = _gfile()
    # TensorFlow ends the names of remote folders with a slash.
    names = gfile.listdir(folder) if gfile.isdir(folder) else []
    return sorted(name.rstrip("/") for name in names)


def remove(path: str) -> None:
    """Remove a file, or a folder with all that is in it."""
    if not on_disk(path):
        gfile = _gfile()
        (gfile.rmtree if gfile.isdir(path) else gfile.remove)(path)
    elif os.path.isdir(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile
