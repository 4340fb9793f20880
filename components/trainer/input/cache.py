"""Which cache keeps the images for later epochs, whether it fits, and the pixels in it."""

import contextlib
import dataclasses
import functools
import hashlib
import logging
import math
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.errors import ConfigurationError, StorageError
from components.host.machine import available_memory, fits_in_memory, gib
from components.host.progress import add_progress
from components.images.options import CHANNELS, TransformConfig
from components.trainer.config.input import InputConfig, reject_pixel_cache
from components.trainer.input.host_calls import Pixels, empty_aligned
from components.trainer.input.sampler import Int64Array
from components.trainer.input.shards import Shards

_LOGGER = logging.getLogger(__name__)

# Largest fraction of the available memory for an explicit choice: training and its model need some.
_MOST_FRACTION = 0.8

# All files in the folder together; holds 700,000 images of 224 pixels, and leaves room on the
# disk of a workstation.
_MOST_FILE_BYTES = 100 * 2**30

# NumPy's files, in a folder for each split that appears whole or not at all. A killed process
# leaves an unfinished one, which may go an hour after the last write.
_PIXELS, _LABELS, _UNFINISHED, _ABANDONED = "pixels.npy", "labels.npy", ".unfinished", 3600.0

Fill = Callable[[Pixels, Int64Array], None]
"""Writes pixels and label ids into arrays, [images, height, width, channels] and [images]."""


def resolve_cache(
    options: InputConfig, splits: Sequence[Shards], config: TransformConfig
) -> InputConfig:
    """Replace `auto` by the cache that fits `splits`, all of which are read at the same time.

    Raises:
        ConfigurationError: the chosen cache does not fit.
    """
    decoded = sum(pixel_bytes(shards, config) for shards in splits)
    cache = options.cache
    if config.storage == "originals":
        reject_pixel_cache(cache)
        cache = "none" if cache == "auto" else cache
    if cache == "auto":
        available = available_memory()
        cache = "decoded" if fits_in_memory(decoded, available) else "none"
        _LOGGER.info(
            "input.cache auto: %s, as all pixels take %s of %s of available memory",
            *(cache, gib(decoded), gib(available)),
        )
    if cache == "decoded":
        _require_memory("decoded", decoded, instead="file, encoded or none")
    if cache == "encoded":
        stored = sum(tf.io.gfile.stat(path).length for shards in splits for path in shards.paths)
        _require_memory("encoded", stored, instead="none")
    if cache == "file" and decoded > _MOST_FILE_BYTES:
        raise ConfigurationError(
            f"input.cache is 'file', which takes {gib(decoded)}, above {gib(_MOST_FILE_BYTES)} for "
            "all files: choose input.cache none."
        )
    return dataclasses.replace(options, cache=cache)


def pixel_bytes(shards: Shards, config: TransformConfig) -> int:
    """Return the bytes of all images of `shards` as uint8 pixels."""
    return shards.total * config.stored_size**2 * CHANNELS


def _require_memory(cache: str, needed: int, *, instead: str) -> None:
    available = available_memory()
    if needed > _MOST_FRACTION * available:
        raise ConfigurationError(
            f"input.cache is {cache!r}, which takes {gib(needed)}, but only {gib(available)} of "
            f"memory are available: choose {instead}."
        )


def cache_pixels(
    dataset: tf.data.Dataset, shards: Shards, config: TransformConfig, options: InputConfig
) -> tuple[Pixels, Int64Array]:
    """Decode a split once, into memory or a local file, depending on `options.cache`.

    Args:
        dataset: all whole images and label ids of `shards` in order; not read if `cache: file`
            finds its file.
        shards: shards of the split.
        config: form of the images.
        options: cache and its folder.

    Returns:
        uint8 [records, stored, stored, 3], aligned for TensorFlow, and int64 [records].
    """
    shape = (shards.total, config.stored_size, config.stored_size, CHANNELS)
    fill = functools.partial(_fill, dataset.prefetch(2), shards)
    if options.cache == "decoded":
        pixels, labels = empty_aligned(shape), np.empty(shards.total, np.int64)
        fill(pixels, labels)
        return pixels, labels
    folder = Path(options.cache_folder) if options.cache_folder else default_folder()
    entry = folder / f"{shards.split}-{_fingerprint(shards, config)}"
    return open_pixels(entry, shape, limit=_MOST_FILE_BYTES, fill=fill)


def _fill(dataset: tf.data.Dataset, shards: Shards, pixels: Pixels, labels: Int64Array) -> None:
    done = 0
    for images, ids in dataset.as_numpy_iterator():
        end = done + len(ids)
        pixels[done:end], labels[done:end] = images, ids
        task = f"decode {shards.uri} {shards.split}"
        add_progress(task, end - done, total=shards.total, unit="images decoded")
        done = end


def _fingerprint(shards: Shards, config: TransformConfig) -> str:
    """Return 16 hexadecimal digits that change with the shards and the form of the images."""
    facts = ["whole folders", repr(config), *map(repr, shards.counts.items())]
    for path in shards.paths:
        status = tf.io.gfile.stat(path)
        facts += [path, str(status.length), str(status.mtime_nsec)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


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
    entry: Path, shape: tuple[int, ...], *, limit: int, fill: Fill
) -> tuple[Pixels, Int64Array]:
    """Map the pixels in the folder `entry` into memory; write them first if there are none.

    Another process may remove the files meanwhile: what is mapped stays readable.

    Args:
        entry: its name identifies the images; its parent holds all cached pixels.
        shape: shape of the pixels, [images, height, width, channels].
        limit: largest size of all cached pixels, bytes; the least recently used go first.
        fill: writes the pixels.

    Returns:
        uint8 of `shape`, and int64 [images].

    Raises:
        StorageError: the pixels do not fit, or the folder cannot be written.
    """
    with _explain_errors(entry.parent):
        entry.parent.mkdir(parents=True, exist_ok=True)
        if not entry.exists():
            _make_room(entry.parent, math.prod(shape), limit=limit)
            _write(entry, shape, fill)
        with contextlib.suppress(PermissionError):  # Another user's, in a shared folder.
            os.utime(entry)
        # Copy on write, as TensorFlow takes over only writable memory.
        return np.load(entry / _PIXELS, mmap_mode="c"), np.load(entry / _LABELS)


def _write(entry: Path, shape: tuple[int, ...], fill: Fill) -> None:
    unfinished = entry.with_name(f"{entry.name}-{uuid.uuid4().hex}{_UNFINISHED}")
    unfinished.mkdir()
    try:
        pixels: Any = np.lib.format.open_memmap(  # type: ignore[no-untyped-call]
            unfinished / _PIXELS, mode="w+", dtype=np.uint8, shape=shape
        )
        # Find a full disk here: a later write to the mapped file would kill the process.
        with (unfinished / _PIXELS).open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, pixels.offset + pixels.nbytes)
        labels = np.empty(shape[0], np.int64)
        fill(pixels, labels)
        pixels.flush()
        np.save(unfinished / _LABELS, labels)
        # Another process may have been faster.
        if not entry.exists():
            unfinished.rename(entry)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _make_room(folder: Path, needed: int, *, limit: int) -> None:
    """Remove the least recently used pixels until `needed` bytes fit."""
    entries = sorted(folder.glob(f"*/{_PIXELS}"), key=lambda path: path.parent.stat().st_mtime)
    used = sum(path.stat().st_size for path in entries)
    while used + needed > limit or shutil.disk_usage(folder).free < needed:
        if not entries:
            free = shutil.disk_usage(folder).free
            raise StorageError(
                f"input.cache is 'file', which takes {gib(needed)} of {gib(limit)} for all "
                f"files; in {folder} {gib(used)} are in use, and {gib(free)} of the "
                f"disk are free: choose another input.cache_folder, or input.cache none."
            )
        used -= _remove(entries.pop(0))


def _remove(pixels: Path) -> int:
    """Remove pixels unless they are being written; return the bytes freed."""
    status, entry = pixels.stat(), pixels.parent
    if entry.suffix == _UNFINISHED and time.time() - status.st_mtime < _ABANDONED:
        return 0
    with contextlib.suppress(PermissionError):
        shutil.rmtree(entry)
        return status.st_size
    return 0


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
