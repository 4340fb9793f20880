"""Which cache keeps the images for later epochs, whether it fits, and the pixels in it."""

import dataclasses
import hashlib
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.errors import ConfigurationError, StorageError
from components.host.machine import available_memory, fits_in_memory, gib
from components.host.progress import add_progress
from components.images.options import CHANNELS, TransformConfig
from components.trainer.config.input import InputConfig
from components.trainer.input.host_calls import Pixels, empty_aligned, read_ahead
from components.trainer.input.sampler import Int64Array
from components.trainer.input.shards import Shards

# Largest fraction of the available memory for an explicit choice: training and its model need some.
_MOST_FRACTION = 0.8

# NumPy's files, in a folder for each split that appears whole or not at all.
_PIXELS, _LABELS = "pixels.npy", "labels.npy"


def resolve_cache(
    options: InputConfig, splits: Sequence[Shards], config: TransformConfig
) -> InputConfig:
    """Replace `auto` by the cache that fits `splits`, all of which are read at the same time.

    Raises:
        ConfigurationError: the chosen cache does not fit.
    """
    decoded = sum(pixel_bytes(shards, config) for shards in splits)
    cache = options.cache
    if cache == "auto":
        cache = "decoded" if fits_in_memory(decoded, available_memory()) else "none"
    if cache == "decoded":
        available = available_memory()
        if decoded > _MOST_FRACTION * available:
            raise ConfigurationError(
                f"input.cache is 'decoded', which takes {gib(decoded)}, but only {gib(available)} "
                f"of memory are available: choose file or none."
            )
    return dataclasses.replace(options, cache=cache)


def pixel_bytes(shards: Shards, config: TransformConfig) -> int:
    """Return the bytes of all images of `shards` as uint8 pixels."""
    return shards.total * config.seen_size**2 * CHANNELS


def cache_pixels(
    dataset: tf.data.Dataset, shards: Shards, config: TransformConfig, options: InputConfig
) -> tuple[Pixels, Int64Array]:
    """Decode a split once, into memory or a local file, depending on `options.cache`.

    `dataset` yields all images and label ids of `shards` in order; it is not read if `cache:
    file` finds its file.

    Returns:
        uint8 [records, size, size, 3], aligned for TensorFlow, and int64 [records].

    Raises:
        StorageError: the folder cannot be written, or the disk is full.
    """
    shape = (shards.total, config.seen_size, config.seen_size, CHANNELS)
    if options.cache == "decoded":
        pixels = empty_aligned(shape)
        return pixels, _fill(dataset, shards, pixels)
    folder = Path(options.cache_folder or "")
    entry = folder / f"{shards.split}-{_fingerprint(shards, config)}"
    try:
        if not entry.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _write(entry, dataset, shards, shape)
        # Copy on write, as TensorFlow takes over only writable memory.
        return np.load(entry / _PIXELS, mmap_mode="c"), np.load(entry / _LABELS)
    except OSError as error:
        raise StorageError(
            f"input.cache is 'file', but {folder} cannot be used: {error}. Choose another "
            f"input.cache_folder, or another input.cache."
        ) from error


def _fill(dataset: tf.data.Dataset, shards: Shards, pixels: Pixels) -> Int64Array:
    """Write the pixels, and return the label ids."""
    labels, done = np.empty(shards.total, np.int64), 0
    for images, ids in read_ahead(dataset).as_numpy_iterator():
        end = done + len(ids)
        pixels[done:end], labels[done:end] = images, ids
        task = f"decode {shards.uri} {shards.split}"
        add_progress(task, end - done, total=shards.total, unit="images decoded")
        done = end
    return labels


def _fingerprint(shards: Shards, config: TransformConfig) -> str:
    """Return 16 hexadecimal digits that change with the shards and the form of the images."""
    facts = ["whole folders", repr(config), *map(repr, shards.counts.items())]
    for path in shards.paths:
        status = tf.io.gfile.stat(path)
        facts += [path, str(status.length), str(status.mtime_nsec)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _write(entry: Path, dataset: tf.data.Dataset, shards: Shards, shape: tuple[int, ...]) -> None:
    unfinished = entry.with_name(f"{entry.name}-{uuid.uuid4().hex}.unfinished")
    unfinished.mkdir()
    try:
        pixels: Any = np.lib.format.open_memmap(  # type: ignore[no-untyped-call]
            unfinished / _PIXELS, mode="w+", dtype=np.uint8, shape=shape
        )
        # Find a full disk here: a later write to the mapped file would kill the process.
        with (unfinished / _PIXELS).open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, pixels.offset + pixels.nbytes)
        labels = _fill(dataset, shards, pixels)
        pixels.flush()
        np.save(unfinished / _LABELS, labels)
        # Another process may have been faster.
        if not entry.exists():
            unfinished.rename(entry)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
