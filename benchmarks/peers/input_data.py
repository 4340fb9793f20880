"""The images that all peers of the input benchmark read: JPEGs with half chroma, packed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.ladder.data import (
    Image,
    canonical_images,
    decoded_images,
    sample_images,
    write_shards,
)
from benchmarks.peers.readers.job import LABELS, OFFSETS, PACKED, RAW
from components.images.original import keep_original
from components.transform.config import TransformConfig

MARGIN = 32
"""Pixels by which images are larger than the random window that `crop` cuts from them."""


def describe(storage: str, size: int) -> TransformConfig:
    """Describe the images of a storage; half chroma, as most JPEGs have it."""
    if storage == "window":
        return TransformConfig(size=size, storage="originals")
    margin = MARGIN if storage == "crop" else 0
    form = "raw" if storage == "raw" else "jpeg"
    return TransformConfig(size=size, margin=margin, storage=form, chroma="half")  # type: ignore[arg-type]


def prepare(data: str, folder: str, *, storage: str, size: int, images: int) -> None:
    """Write a sample of the images at `data` into `folder`: packed, and as our own shards.

    Args:
        data: folder of images, as the pipeline takes it.
        folder: a new one.
        storage: of `STORAGES`.
        size: side of what the model sees, pixels.
        images: number of them; if there are fewer, they are repeated.
    """
    Path(folder).mkdir(parents=True)
    _, sample = sample_images(data, images)
    config = describe(storage, size)
    stored = _store(sample, storage, config)
    write_shards(folder, itertools.cycle(stored), images)
    labels = [label for _, label in _repeat(stored, images)]
    np.save(Path(folder, LABELS), np.array(labels, np.int64))
    _write_packed(Path(folder, PACKED), _repeat(stored, images))
    sizes = [len(file) for file, _ in _repeat(stored, images)]
    np.save(Path(folder, OFFSETS), np.concatenate([[0], np.cumsum(sizes)]))
    if storage == "raw":
        _as_array(folder, len(labels), size)


def _store(sample: list[Image], storage: str, config: TransformConfig) -> list[Image]:
    """Return what Transform makes of images."""
    if storage == "original":
        return sample
    if storage == "window":
        return [(keep_original(file, config), label) for file, label in sample]
    stored = canonical_images(sample, config)
    return decoded_images(stored, config) if storage == "raw" else stored


def _repeat(images: list[Image], count: int) -> Iterator[Image]:
    return itertools.islice(itertools.cycle(images), count)


def _write_packed(path: Path, images: Iterator[Image]) -> None:
    with path.open("wb") as file:
        file.writelines(encoded for encoded, _ in images)


def _as_array(folder: str, count: int, size: int) -> None:
    """Turn the packed pixels into a file that NumPy maps; its header is all that is new."""
    pixels = np.memmap(Path(folder, PACKED), np.uint8, "r", shape=(count, size, size, 3))
    np.save(Path(folder, RAW), pixels)
    Path(folder, PACKED).unlink()
