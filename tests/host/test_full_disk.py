"""Errors of a full disk, as several libraries raise them."""

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from components.contract.errors import StorageError
from components.host.machine import explaining_full_disk


def within(error: Exception, other: Exception) -> Exception:
    other.__context__ = error
    return other


def from_system(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)


FULL = [
    from_system(errno.ENOSPC),
    from_system(errno.EDQUOT),
    RuntimeError("RESOURCE_EXHAUSTED: /out/x; No space left on device [while running 'Write']"),
    sqlite3.OperationalError("database or disk is full"),
    within(from_system(errno.ENOSPC), StorageError("Cannot write /out/run.json: no space.")),
    within(within(from_system(errno.ENOSPC), KeyError("a")), ValueError("b")),
]


@pytest.mark.parametrize("error", FULL, ids=str)
def test_a_full_disk_is_one_sentence(tmp_path: Path, error: Exception) -> None:
    with (
        pytest.raises(StorageError, match=r"No space left in \S+; [\d,.]+ MiB are free there"),
        explaining_full_disk(str(tmp_path)),
    ):
        raise error


def test_the_folder_is_that_of_the_file(tmp_path: Path) -> None:
    place = tmp_path / "shards"
    place.mkdir()
    with (
        pytest.raises(StorageError, match=f"in {place};"),
        explaining_full_disk(str(tmp_path)),
    ):
        raise from_system(errno.ENOSPC, str(place / "file"))


@pytest.mark.parametrize(
    "error", [from_system(errno.EIO), ValueError("full"), StorageError("No.")], ids=str
)
def test_other_errors_are_not_explained(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as caught, explaining_full_disk(str(tmp_path)):
        raise error
    assert caught.value is error
