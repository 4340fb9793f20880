"""Images that resemble others: the nearest training images, and the map."""

import dataclasses
import mmap
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.manifold import TSNE

from components.contract.example import TRAIN
from components.contract.image_tables import Suspect
from components.host.machine import release_pages
from components.report.shown import ImageMap

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Features = npt.NDArray[np.floating[Any]]
Places = npt.NDArray[np.float64]
Columns = Mapping[str, Any]
"""Name → values of all images, in arrays or as `Texts`."""

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

MOST_POINTS = 3_000
# Few for t-SNE, but so many images have parted into groups by then, and 3,000 take about ten
# seconds. Fewer images need twice as many.
_ITERATIONS, _MANY, _NEIGHBORS = 250, 1_000, 15
# Single images far away, percent, would shrink the rest.
_OUTLYING = 0.2
_SIMILAR = 3


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
        nearest = rows[_BLOCK - 1 - keys % _BLOCK]
        merged = (keys // _BLOCK).astype(np.int64) << _ROW_BITS | (_LAST_ROW - nearest)
        merged[nearest == queries[:, None]] = _NONE
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


def find_similar(
    paths: Sequence[str], columns: Columns, features: Features
) -> dict[str, tuple[str, ...]]:
    """Map each of `paths` that has features to the most similar training images."""
    rows = find_rows(paths, columns["path"])
    train = np.flatnonzero(columns["split"] == TRAIN)
    neighbors = find_neighbors(features, rows, among=train, most=_SIMILAR).rows
    near = columns["path"][neighbors.clip(0).ravel()].reshape(neighbors.shape)
    return {
        path: tuple(neighbor[exists].tolist())
        for path, neighbor, exists in zip(columns["path"][rows], near, neighbors >= 0, strict=True)
    }


def find_rows(paths: Collection[str], all_paths: Iterable[str]) -> npt.NDArray[np.int64]:
    """Return the rows of the paths that are in the table, ascending."""
    wanted = set(paths)
    return np.array([row for row, path in enumerate(all_paths) if path in wanted], np.int64)


def add_neighbors(
    suspects: Sequence[Suspect], columns: Columns, features: Features
) -> list[Suspect]:
    """Add the most similar training images to suspects that have no neighbors."""
    alone = [suspect.path for suspect in suspects if not suspect.neighbors]
    similar = find_similar(alone, columns, features)
    return [
        dataclasses.replace(suspect, neighbors=suspect.neighbors or similar.get(suspect.path, ()))
        for suspect in suspects
    ]


def draw_map(columns: Columns, features: Features, suspects: Collection[str]) -> ImageMap:
    """Place evenly spaced images, and `suspects`, on a map."""
    total = len(features)
    step = max(1, -(-total // MOST_POINTS))
    rows = np.union1d(np.arange(0, total, step), find_rows(suspects, columns["path"]))
    return ImageMap(
        tuple(columns["path"][rows].tolist()),
        tuple(columns["label"][rows].tolist()),
        lay_out(read_rows(features, rows)),
        frozenset(suspects),
        total,
    )


def lay_out(features: Features) -> Places:
    """Return coordinates from 0 to 1, [rows, 2]: similar images lie close together.

    The same features give the same places on as many threads.
    """
    rows = normalize(features)
    if len(rows) < 3 or not np.ptp(rows, axis=0).any():
        return np.full((len(rows), 2), 0.5)
    layout = TSNE(
        perplexity=min(_NEIGHBORS, (len(rows) - 1) / 3),
        init="pca",
        max_iter=_ITERATIONS if len(rows) >= _MANY else 2 * _ITERATIONS,
        random_state=0,
    )
    places = layout.fit_transform(rows).astype(np.float64)
    low, high = np.percentile(places, (_OUTLYING, 100 - _OUTLYING), axis=0)
    scaled = np.clip((places - low) / np.maximum(high - low, 1e-9), 0, 1)
    # Halfway to equal spacing, for room between the points of a tight group.
    ranks = places.argsort(axis=0, kind="stable").argsort(axis=0) / (len(places) - 1)
    mixed: Places = (scaled + ranks) / 2
    return mixed
