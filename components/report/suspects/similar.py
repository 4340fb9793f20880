"""The training images that an image resembles, and the map of all images, by their features."""

import dataclasses
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from components.contract.example import TRAIN
from components.contract.suspects import Suspect
from components.report.suspects.map_layout import lay_out
from components.report.suspects.neighbors import Features, find_neighbors, read_rows
from components.report.suspects.odd_images import Columns
from components.report.suspects.shown import ImageMap

MOST_POINTS = 10_000
_SIMILAR = 3


def find_similar(
    paths: Sequence[str], columns: Columns, features: Features
) -> dict[str, tuple[str, ...]]:
    """Map each of `paths` that has features to the most similar training images."""
    rows = find_rows(paths, columns["path"])
    train = np.flatnonzero(columns["split"] == TRAIN)
    found = find_neighbors(features, rows, among=train, most=_SIMILAR).rows
    near = columns["path"][found.clip(0).ravel()].reshape(found.shape)
    return {
        path: tuple(of[exists].tolist())
        for path, of, exists in zip(columns["path"][rows], near, found >= 0, strict=True)
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
