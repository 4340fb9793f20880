"""What of the images is kept in memory, or in a local file, for the epochs after the first."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.errors import UserError
from components.contract.machine import available_memory, gib
from components.contract.progress import add_progress
from components.images.canonical import CHANNELS
from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.data.host_decode import Pixels, empty_aligned
from pipeline_def.data.shards import Int64Array, Shards

DEFAULT_FOLDER = os.path.join(tempfile.gettempdir(), "image-cache")
"""Where `cache: file` keeps pixels if no folder is named."""

_LOGGER = logging.getLogger(__name__)

# Training, its model and what other processes start to use need memory, too.
_AUTO_SHARE = 0.5
_MOST = 0.8

# Shards of a bucket that are downloaded at the same time, and the size of a request.
_DOWNLOADS = 8
_DOWNLOAD_BYTES = 16 * 2**20


def resolve_cache(
    options: InputConfig, splits: Sequence[Shards], config: TransformConfig
) -> InputConfig:
    """Replace `auto` by the kind of cache that fits into the memory that is available.

    Args:
        options: as the user gave them.
        splits: all that will be read at the same time.
        config: of the images.

    Raises:
        UserError: the cache that was asked for does not fit.
    """
    decoded = sum(pixel_bytes(shards, config) for shards in splits)
    cache = options.cache
    if cache == "auto":
        available = available_memory()
        cache = "decoded" if fits_in_memory(decoded, available) else "none"
        _LOGGER.info(
            "input.cache auto: %s, as all pixels take %s of %s of memory that are available",
            *(cache, gib(decoded), gib(available)),
        )
    if cache == "decoded":
        _require_memory("decoded", decoded, instead="file, encoded or none")
    if cache == "encoded":
        _require_memory("encoded", sum(map(_stored_bytes, splits)), instead="none")
    return dataclasses.replace(options, cache=cache)


def fits_in_memory(size: int, available: int) -> bool:
    """Return whether `size` bytes leave enough of the `available` ones for all else."""
    return size <= _AUTO_SHARE * available


def pixel_bytes(shards: Shards, config: TransformConfig) -> int:
    """Return the bytes of all images of `shards` as uint8 pixels."""
    return shards.total * config.stored_size**2 * CHANNELS


def _stored_bytes(shards: Shards) -> int:
    return sum(tf.io.gfile.stat(path).length for path in shards.paths)


def _require_memory(cache: str, needed: int, *, instead: str) -> None:
    available = available_memory()
    if needed > _MOST * available:
        raise UserError(
            f"input.cache is {cache!r}, which takes {gib(needed)}, and {gib(available)} of memory "
            f"are available: choose {instead}."
        )


def load_shards(shards: Shards) -> list[memoryview]:
    """Read whole shards into memory."""
    task = f"read {shards.uri} {shards.split}"

    def load(path: str, records: int) -> memoryview:
        parts = []
        with tf.io.gfile.GFile(path, "rb") as file:
            while part := file.read(_DOWNLOAD_BYTES):
                parts.append(part)
        add_progress(task, records, total=shards.total, unit="images read into memory")
        return memoryview(b"".join(parts))

    with ThreadPoolExecutor(_DOWNLOADS) as pool:
        return list(pool.map(load, shards.paths, shards.counts.values()))


def decode_all(
    batches: Iterable[tuple[Any, Any]],
    shards: Shards,
    config: TransformConfig,
    *,
    folder: str | None,
) -> tuple[Pixels, Int64Array]:
    """Keep the pixels and labels of every image, in the order of the shards.

    Args:
        batches: uint8 [batch, stored, stored, 3] and int64 [batch], of the whole split, in order.
        shards: that split.
        config: of the images.
        folder: keep the pixels in a file there instead of in memory; one that is there is used.

    Returns:
        uint8 [records, stored, stored, 3], aligned for TensorFlow, and int64 [records].
    """
    shape = (shards.total, config.stored_size, config.stored_size, CHANNELS)
    if folder is None:
        pixels, labels = empty_aligned(shape), np.empty(shards.total, np.int64)
        _fill(batches, pixels, labels, shards)
        return pixels, labels
    target = os.path.join(folder, f"{shards.split}-{_fingerprint(shards, config)}")
    if not os.path.isdir(target):
        _require_disk(folder, pixel_bytes(shards, config))
        _write_file(batches, shape, shards, target)
    # Copy on write, as TensorFlow only takes over memory that could be written to.
    pixels = np.load(os.path.join(target, "pixels.npy"), mmap_mode="c")
    return pixels, np.load(os.path.join(target, "labels.npy"))


def _write_file(
    batches: Iterable[tuple[Any, Any]], shape: tuple[int, ...], shards: Shards, target: str
) -> None:
    """Write a folder that appears whole, or not at all."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as unfinished:
        pixels: Any = np.lib.format.open_memmap(  # type: ignore[no-untyped-call]
            os.path.join(unfinished, "pixels.npy"), mode="w+", dtype=np.uint8, shape=shape
        )
        labels = np.empty(shards.total, np.int64)
        _fill(batches, pixels, labels, shards)
        pixels.flush()
        np.save(os.path.join(unfinished, "labels.npy"), labels)
        whole = os.path.join(unfinished, "whole")
        os.mkdir(whole)
        for name in ("pixels.npy", "labels.npy"):
            os.rename(os.path.join(unfinished, name), os.path.join(whole, name))
        try:
            os.rename(whole, target)
        except OSError:
            # Another process was faster, with the same images.
            if not os.path.isdir(target):
                raise


def _fill(
    batches: Iterable[tuple[Any, Any]], pixels: Pixels, labels: Int64Array, shards: Shards
) -> None:
    done = 0
    task = f"decode {shards.uri} {shards.split}"
    for images, ids in batches:
        end = done + len(ids)
        pixels[done:end], labels[done:end] = images, ids
        add_progress(task, end - done, total=shards.total, unit="images decoded")
        done = end


def _fingerprint(shards: Shards, config: TransformConfig) -> str:
    """Return 16 hexadecimal digits that change with the shards and the form of the images."""
    facts = [repr(config), *map(repr, shards.counts.items())]
    for path in shards.paths:
        status = tf.io.gfile.stat(path)
        facts += [path, str(status.length), str(status.mtime_nsec)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _require_disk(folder: str, needed: int) -> None:
    os.makedirs(folder, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"input.cache is 'file', which takes {gib(needed)}, and {gib(free)} are free in "
            f"{folder}: choose another input.cache_folder, or input.cache none."
        )
