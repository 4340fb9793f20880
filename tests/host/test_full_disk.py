"""Errors of a full disk, as several libraries raise them."""

import errno
import os
import sqlite3

import pytest

from components.contract.errors import StorageError
from components.host.machine import explaining_full_disk


def within(error: Exception, *others: Exception) -> Exception:
    for other in others:
        other.__context__ = error
        error = other
    return error


def from_system(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)


FULL = [
    from_system(errno.ENOSPC),
    from_system(errno.EDQUOT),
    from_system(errno.ENOSPC, "/var/file"),
    RuntimeError("RESOURCE_EXHAUSTED: /out/x; No space left on device [while running 'Write']"),
    sqlite3.OperationalError("database or disk is full"),
    within(from_system(errno.ENOSPC), StorageError("Cannot write /out/run.json: no space.")),
    within(from_system(errno.ENOSPC), KeyError("a"), ValueError("b")),
]


@pytest.mark.parametrize("error", FULL, ids=str)
def test_a_full_disk_is_one_sentence(error: Exception) -> None:
    # The folder is that of the file, if one is named.
    place = os.path.dirname(getattr(error, "filename", None) or "/tmp/")
    with (
        pytest.raises(StorageError, match=rf"No space left in {place}; [\d,.]+ MiB are free there"),
        explaining_full_disk("/tmp"),
    ):
        raise error


def test_other_errors_are_not_explained() -> None:
    for error in (from_system(errno.EIO), ValueError("full"), StorageError("No.")):
        with pytest.raises(type(error)) as caught, explaining_full_disk("/tmp"):
            raise error
        assert caught.value is error
