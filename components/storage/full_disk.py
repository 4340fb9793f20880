"""Tells a full disk from other failures, whichever library met it, and says where it is full."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator

from components.contract.errors import StorageError

_FULL = (errno.ENOSPC, errno.EDQUOT)
# TensorFlow, Beam and SQLite tell by their text only.
_WORDS = (*map(os.strerror, _FULL), "database or disk is full")


@contextlib.contextmanager
def explaining_full_disk(output: str) -> Iterator[None]:
    """Turn an error that comes from a full disk into one sentence.

    Args:
        output: the folder that is written to, beside that for temporary files.

    Raises:
        StorageError: the sentence.
    """
    try:
        yield
    except Exception as error:
        if explained := explain_full_disk(error, output):
            raise explained from error
        raise


def explain_full_disk(error: Exception, output: str) -> StorageError | None:
    """Return the sentence for an error that comes from a full disk; None for any other."""
    full = next(filter(_is_full, _chain(error)), None)
    if full is None:
        return None
    folder = _find_folder(full, output)
    free = shutil.disk_usage(folder).free / 2**20
    return StorageError(
        f"No space was left in {folder}; {free:,.1f} MiB are free there now. Make space, and run "
        "again: what is finished is kept."
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that it was raised from or after."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(word in str(error) for word in _WORDS)


def _find_folder(error: BaseException, output: str) -> str:
    """Return the folder of the file that could not be written; else the one that is fuller."""
    named = getattr(error, "filename", None)
    if isinstance(named, str) and os.path.isdir(folder := os.path.dirname(named)):
        return folder
    return min((output, tempfile.gettempdir()), key=lambda path: shutil.disk_usage(path).free)
