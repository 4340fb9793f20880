"""Pixels in files that later runs reuse, in a folder of bounded size; the oldest go first.

A process locks the folder while it opens, writes or removes pixels. It keeps a shared lock on the
pixels that it uses until it exits or is killed; other processes do not remove those.
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
from typing import TYPE_CHECKING, Any

import numpy as np

from components.contract.errors import StorageError
from components.host.machine import gib
from pipeline_def.data.sampler import Int64Array

if TYPE_CHECKING:
    # TensorFlow takes seconds to load.
    from pipeline_def.data.host_calls import Pixels

# Labels are written last: pixels without them are incomplete.
_PIXELS, _LABELS = "pixels.npy", "labels.npy"


def default_folder() -> Path:
    """Return this user's private cache folder, and create it if necessary.

    Source: the XDG Base Directory Specification; a relative `XDG_CACHE_HOME` is ignored.

    Raises:
        StorageError: it cannot be created, or belongs to another user.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    root = named if named.is_absolute() else Path("~/.cache").expanduser()
    folder = root / "tfx-image-pipeline" / "pixels"
    with _explain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise StorageError(
                f"{folder} belongs to another user, who could change the pixels in it: set "
                f"input.cache_folder to another folder."
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
    """Map the pixels in the folder `entry` into memory; call `fill` first if there are none.

    Args:
        entry: its name identifies the images; its parent holds all cached pixels.
        shape: shape of the pixels, [images, height, width, channels].
        limit: largest size of all cached pixels, bytes.
        fill: writes pixels and label ids into arrays of `shape` and [images].

    Returns:
        uint8 of `shape`, locked until nothing refers to it, and int64 [images].

    Raises:
        StorageError: the pixels do not fit, or the folder cannot be written.
    """
    folder, labels = entry.parent, entry / _LABELS
    with _explain_errors(folder):
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
            with contextlib.suppress(PermissionError):  # Another user's, in a shared folder.
                os.utime(entry)
        # Copy on write, as TensorFlow takes over only writable memory.
        pixels = np.load(entry / _PIXELS, mmap_mode="c")
        weakref.finalize(pixels, used.close)
        return pixels, np.load(labels)


def _write(entry: Path, shape: tuple[int, ...], fill: Callable[[Pixels, Int64Array], None]) -> None:
    pixels: Any = np.lib.format.open_memmap(  # type: ignore[no-untyped-call]
        entry / _PIXELS, mode="w+", dtype=np.uint8, shape=shape
    )
    # Find a full disk here: a later write to the mapped file would kill the process.
    with (entry / _PIXELS).open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, pixels.offset + pixels.nbytes)
    labels = np.empty(shape[0], np.int64)
    fill(pixels, labels)
    pixels.flush()
    unfinished = entry / f"unfinished-{_LABELS}"
    np.save(unfinished, labels)
    unfinished.rename(entry / _LABELS)


def _make_room(folder: Path, needed: int, *, limit: int) -> None:
    """Remove the least recently used pixels until `needed` bytes fit."""
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
    """Remove the pixels in `entry` unless they are in use; return the bytes freed."""
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
def _explain_errors(folder: Path) -> Iterator[None]:
    """Turn system errors into a message for the user."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"input.cache is 'file', but {folder} cannot be used: {error}. Choose another "
            f"input.cache_folder, or another input.cache."
        ) from error
