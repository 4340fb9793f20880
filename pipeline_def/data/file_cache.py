"""Pixels in files that later runs use again: bounded, and those unused for longest go first.

A process that opens, writes or removes pixels has the folder to itself meanwhile. It shares the
lock of the pixels that it uses until it ends, however that happens; nobody removes those.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import shutil
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from components.contract.errors import StorageError
from components.contract.machine import gib
from pipeline_def.data.batch_memory import Pixels
from pipeline_def.data.sampler import Int64Array

# Labels come last: pixels without them are not whole.
_PIXELS, _LABELS = "pixels.npy", "labels.npy"


def default_folder() -> Path:
    """Return this user's own cache folder, made if need be, which nobody else can look into.

    Source: the XDG Base Directory Specification; a relative `XDG_CACHE_HOME` does not count.

    Raises:
        StorageError: it cannot be made, or belongs to somebody else.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    root = named if named.is_absolute() else Path("~/.cache").expanduser()
    folder = root / "tfx-image-pipeline" / "pixels"
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise StorageError(
                f"{folder} belongs to another user, who could change the pixels in it: name "
                f"another folder in input.cache_folder."
            )
        folder.chmod(0o700)
    return folder


def open_pixels(
    entry: Path,
    shape: tuple[int, ...],
    *,
    limit: int,
    fill: Callable[[Pixels, Int64Array], None],
) -> tuple[Pixels, Int64Array]:
    """Map the pixels in the folder `entry` into memory, after `fill` if they are not there yet.

    Args:
        entry: its name says which images they are; its parent holds all that are cached.
        shape: of the pixels, [images, height, width, channels].
        limit: bytes that all cached pixels may take together.
        fill: writes the pixels and the label ids into arrays of `shape` and of [images].

    Returns:
        uint8 of `shape`, in use until nothing refers to it, and int64 [images].

    Raises:
        StorageError: the pixels do not fit, or the folder cannot be written.
    """
    folder, labels = entry.parent, entry / _LABELS
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("a") as alone:
            fcntl.flock(alone, fcntl.LOCK_EX)
            if not labels.exists():
                shutil.rmtree(entry, ignore_errors=True)
                _make_room(folder, math.prod(shape), limit=limit)
                entry.mkdir()
                _write(entry, shape, fill)
            used = (entry / _PIXELS).open("rb")
            fcntl.flock(used, fcntl.LOCK_SH)
            with contextlib.suppress(PermissionError):  # Of another user, in a folder they share.
                os.utime(entry)
        # Copy on write, as TensorFlow only takes over memory that could be written to.
        pixels = np.load(entry / _PIXELS, mmap_mode="c")
        weakref.finalize(pixels, used.close)
        return pixels, np.load(labels)


def _write(entry: Path, shape: tuple[int, ...], fill: Callable[[Pixels, Int64Array], None]) -> None:
    pixels: Any = np.lib.format.open_memmap(  # type: ignore[no-untyped-call]
        entry / _PIXELS, mode="w+", dtype=np.uint8, shape=shape
    )
    # A full disk is an error here; later, a write to the mapped file would kill the process.
    with (entry / _PIXELS).open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, pixels.offset + pixels.nbytes)
    labels = np.empty(shape[0], np.int64)
    fill(pixels, labels)
    pixels.flush()
    unfinished = entry / f"unfinished-{_LABELS}"
    np.save(unfinished, labels)
    unfinished.rename(entry / _LABELS)


def _make_room(folder: Path, needed: int, *, limit: int) -> None:
    """Remove the pixels that were not used for longest, until `needed` bytes fit."""
    entries = [path.parent for path in folder.glob(f"*/{_PIXELS}")]
    entries.sort(key=lambda entry: entry.stat().st_mtime)
    used = sum(map(_size, entries))
    while used + needed > limit or shutil.disk_usage(folder).free < needed:
        if not entries:
            free = shutil.disk_usage(folder).free
            raise StorageError(
                f"input.cache is 'file', which takes {gib(needed)} of the {gib(limit)} of "
                f"input.cache_file_gib; in {folder} {gib(used)} are in use, and {gib(free)} of the "
                f"disk are free: choose another input.cache_folder, or input.cache none."
            )
        used -= _evict(entries.pop(0))


def _evict(entry: Path) -> int:
    """Remove the pixels in `entry` unless they are in use; return the bytes that this frees."""
    size = _size(entry)
    try:
        with (entry / _PIXELS).open("r+b") as pixels:
            fcntl.flock(pixels, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return 0
    (entry / _LABELS).unlink(missing_ok=True)
    shutil.rmtree(entry)
    return size


def _size(entry: Path) -> int:
    return (entry / _PIXELS).stat().st_size


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn errors of the system into a sentence for the user."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"input.cache is 'file', and {folder} cannot be used: {error}. Choose another "
            f"input.cache_folder, or another input.cache."
        ) from error
