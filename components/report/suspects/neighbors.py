"""The images whose features are most similar, in bounded memory."""

import mmap
import os
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from components.host.machine import release_pages

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Features = npt.NDArray[np.floating[Any]]

# Rows whose features are converted to float32 at once: 64 MiB of 2,048 features.
_BLOCK = 8192
_QUERIES = 1024
# Float32 sums differ in the last bits with the number of threads.
_STEPS = 10_000
# Keys order neighbors: the cosine, in steps, above bits that prefer the lower place in a block, or
# the lower row.
_ROW_BITS = 32
_LAST_ROW = 2**_ROW_BITS - 1
_NONE = np.iinfo(np.int64).min


class Neighbors(NamedTuple):
    """The most similar rows of each query, the most similar first."""

    rows: Ints
    """int64 [queries, neighbors]; -1 where there are not as many."""
    similarities: Floats
    """Cosine, float32 [queries, neighbors]; -2 where there are not as many."""


def find_neighbors(features: Features, queries: Ints, *, among: Ints, most: int) -> Neighbors:
    """Find the most similar other rows by the cosine of their features.

    Args:
        features: [rows, features] of any float type, for example a memory map of
            `embeddings.npy`; rows of zeros resemble nothing.
        queries: numbers of rows, [queries].
        among: ascending numbers of the rows to choose from, such as the training images.
        most: neighbors of each query.
    """
    parts = [
        _search(features, queries[start : start + _QUERIES], among, most)
        for start in range(0, len(queries), _QUERIES)
    ]
    rows = [part.rows for part in parts] or [np.empty((0, most), np.int64)]
    similarities = [part.similarities for part in parts] or [np.empty((0, most), np.float32)]
    return Neighbors(np.concatenate(rows), np.concatenate(similarities))


def _search(features: Features, queries: Ints, among: Ints, most: int) -> Neighbors:
    wanted = normalize(features[queries])
    best = np.full((len(queries), most), _NONE)
    for start in range(0, len(among), _BLOCK):
        rows = among[start : start + _BLOCK]
        steps = _STEPS * (wanted @ normalize(features[rows]).T)
        keys = np.rint(steps, out=steps).astype(np.int32) * _BLOCK
        keys += np.arange(_BLOCK - 1, _BLOCK - 1 - len(rows), -1, np.int32)
        # One more, as an image is its own neighbor.
        keys = np.partition(keys, -min(most + 1, len(rows)), axis=1)[:, -most - 1 :]
        found = rows[_BLOCK - 1 - keys % _BLOCK]
        merged = (keys // _BLOCK).astype(np.int64) << _ROW_BITS | (_LAST_ROW - found)
        merged[found == queries[:, None]] = _NONE
        best = np.sort(np.concatenate([best, merged], axis=1), axis=1)[:, -most:]
        if len(among) > _BLOCK:
            release_pages(features)
    best = best[:, ::-1]
    exists = best != _NONE
    return Neighbors(
        np.where(exists, _LAST_ROW - (best & _LAST_ROW), -1),
        np.where(exists, (best >> _ROW_BITS) / _STEPS, -2).astype(np.float32),
    )


def read_rows(features: Features, rows: Ints) -> Features:
    """Copy rows; those of a memory map from its file, as the system maps many pages about each."""
    if not isinstance(features, np.memmap) or not isinstance(features.base, mmap.mmap):
        return features[rows]
    size = features.strides[0]
    with open(str(features.filename), "rb") as file:
        parts = [os.pread(file.fileno(), size, features.offset + row * size) for row in rows]
    return np.frombuffer(b"".join(parts), features.dtype).reshape(len(rows), features.shape[1])


def normalize(features: Features) -> Floats:
    """Scale each row to length 1, as float32; rows of zeros and of infinite values become zeros."""
    rows = np.nan_to_num(np.asarray(features, np.float32), posinf=0, neginf=0)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Floats = rows / np.where(lengths > 0, lengths, 1)
    return scaled
