"""The images that all contenders of the comparison read: packed JPEGs with half chroma."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.ladder.data import Image, canonical_images, sample_images, write_shards
from benchmarks.peers.readers.job import LABELS, OFFSETS, PACKED
from components.images.original import keep_original
from components.transform.config import TransformConfig


def describe(storage: str, size: int) -> TransformConfig:
    """Describe the images of a storage; half chroma, as most JPEGs have it."""
    if storage == "window":
        return TransformConfig(size=size, storage="originals")
    return TransformConfig(size=size, chroma="half")


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
    stored = (
        [(keep_original(file, config), label) for file, label in sample]
        if storage == "window"
        else canonical_images(sample, config)
    )
    write_shards(folder, itertools.cycle(stored), images)
    labels = [label for _, label in _repeat(stored, images)]
    np.save(Path(folder, LABELS), np.array(labels, np.int64))
    _write_packed(Path(folder, PACKED), _repeat(stored, images))
    sizes = [len(file) for file, _ in _repeat(stored, images)]
    np.save(Path(folder, OFFSETS), np.concatenate([[0], np.cumsum(sizes)]))


def _repeat(images: list[Image], count: int) -> Iterator[Image]:
    return itertools.islice(itertools.cycle(images), count)


def _write_packed(path: Path, images: Iterator[Image]) -> None:
    with path.open("wb") as file:
        file.writelines(encoded for encoded, _ in images)
