"""A folder that a command writes whole or not at all."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator

from components.contract.errors import ConfigurationError
from components.storage.folder import explaining_errors


def check_target(target: str, *, option: str = "") -> None:
    """Raise `ConfigurationError` unless `target` is a new or an empty folder."""
    if os.path.lexists(target) and not (os.path.isdir(target) and not os.listdir(target)):
        raise ConfigurationError(f"{option}{target} exists: name a new or an empty folder.")


@contextlib.contextmanager
def whole_folder(target: str) -> Iterator[str]:
    """Yield a folder that becomes `target` at the end; nothing is left after an error.

    Raises:
        StorageError: the disk is full, or a file cannot be written.
    """
    unfinished = f"{target}.{uuid.uuid4().hex}"
    try:
        with explaining_errors("write", target):
            os.makedirs(unfinished)
            yield unfinished
            os.replace(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
