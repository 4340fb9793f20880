"""A disk of a few megabytes, which can be filled and emptied, and folders that are read-only."""

from __future__ import annotations

import contextlib
import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_BALLAST = "ballast"
_BLOCK = b"\0" * 4096


@contextlib.contextmanager
def small_disk(folder: Path, *, mib: int) -> Iterator[Path]:
    """Mount a disk at `folder` while the context is open; skip the test where that is forbidden.

    It is another file system than that of the images.
    """
    folder.mkdir()
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs"):
        yield folder


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Keep everybody from writing to a folder, the superuser too."""
    with _mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        yield


@contextlib.contextmanager
def _mounted(folder: Path, *what: str) -> Iterator[None]:
    try:
        subprocess.run(["mount", *what, str(folder)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leave no space."""
    with (disk / _BALLAST).open("ab", buffering=0) as file:
        try:
            while True:
                file.write(_BLOCK)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def make_space(disk: Path) -> None:
    """Remove what has filled the disk."""
    (disk / _BALLAST).unlink()
