"""The images whose features are most similar, in bounded memory."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

# Rows whose features are converted to float32 at once: 64 MiB of 2,048 features.
_BLOCK = 8192
_QUERIES = 1024
# Float32 sums differ in the last bits with the number of threads; ties go to the lower row.
_DIGITS = 4


class Neighbors(NamedTuple):
    """The most similar rows of each query, the most similar first."""

    rows: Ints
    """int64 [queries, neighbors]; -1 where there are not as many."""
    similarities: Floats
    """Cosine, float32 [queries, neighbors]; -2 where there are not as many."""


def find_neighbors(
    features: npt.NDArray[np.floating[Any]], queries: Ints, *, among: Ints, most: int
) -> Neighbors:
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


def _search(
    features: npt.NDArray[np.floating[Any]], queries: Ints, among: Ints, most: int
) -> Neighbors:
    wanted = normalize(features[queries])
    best = np.full((len(queries), most), -1, np.int64)
    values = np.full((len(queries), most), -2, np.float32)
    for start in range(0, len(among), _BLOCK):
        rows = among[start : start + _BLOCK]
        found = np.round(wanted @ normalize(features[rows]).T, _DIGITS)
        found[rows[None, :] == queries[:, None]] = -2
        # A stable sort keeps the lower row first, also against those of earlier blocks.
        all_values = np.concatenate([values, found], axis=1)
        all_rows = np.concatenate([best, np.broadcast_to(rows, found.shape)], axis=1)
        order = np.argsort(-all_values, axis=1, kind="stable")[:, :most]
        values = np.take_along_axis(all_values, order, axis=1)
        best = np.where(values > -2, np.take_along_axis(all_rows, order, axis=1), -1)
    return Neighbors(best, values)


def normalize(features: npt.NDArray[np.floating[Any]]) -> Floats:
    """Scale each row to length 1, as float32; rows of zeros and of infinite values become zeros."""
    rows = np.nan_to_num(np.asarray(features, np.float32), posinf=0, neginf=0)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Floats = rows / np.where(lengths > 0, lengths, 1)
    return scaled
