"""Recognize a full disk in any library's error, and find out which disk it is."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator

from components.contract.errors import StorageError

_FULL = (errno.ENOSPC, errno.EDQUOT)
# TensorFlow, Beam and SQLite raise errors with only a text.
_WORDS = (*map(os.strerror, _FULL), "database or disk is full")


@contextlib.contextmanager
def explaining_full_disk(output: str) -> Iterator[None]:
    """Turn an error caused by a full disk into a `StorageError`.

    Args:
        output: the folder written to, besides that of temporary files.
    """
    try:
        yield
    except Exception as error:
        full = next(filter(_is_full, _chain(error)), None)
        if full is None:
            raise
        folder = _find_folder(full, output)
        free = shutil.disk_usage(folder).free / 2**20
        raise StorageError(
            f"No space left in {folder}; {free:,.1f} MiB are free there now. Make space and run "
            "again: finished steps are kept."
        ) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that caused it."""
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
    """Return the folder of the file that could not be written, or else the fuller disk's."""
    named = getattr(error, "filename", None)
    if isinstance(named, str) and os.path.isdir(folder := os.path.dirname(named)):
        return folder
    return min((output, tempfile.gettempdir()), key=lambda path: shutil.disk_usage(path).free)
