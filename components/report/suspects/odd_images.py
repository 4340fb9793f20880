"""Odd images: dark, blurred, blank and others, issue types of CleanVision.

An image is odd if it passes an absolute limit and also stands out among the others, so that a set
of gray or dark images is not odd as a whole.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from components.contract.example import TRAIN
from components.contract.image_tables import Reason, Suspect
from components.host.machine import release_pages
from components.report.suspects.similar import Columns, Features, Ints, find_neighbors

_IDENTITY = ("sha256", "path", "split", "label")

Floats = npt.NDArray[np.float64]

MOST = 36
"""Odd images of a report, no more than a person looks at."""
_MOST_EACH = 12

# Robust standard deviations from the median, in the logarithm of a value, beyond which it stands
# out. Distances to neighbors have a long tail.
_STANDS_OUT, _FAR = 3.0, 5.0
_TO_DEVIATION = 1.4826
_TINIEST = 1e-3
# Octaves to assume at least: nearly equal values have no outliers.
_LEAST_DEVIATION = 0.25

_NEAREST = 5
# Training images that stand for all others, as comparing all pairs would take too long.
_REFERENCES = 2048
# Images that are compared with them at a time.
_BLOCK = 65_536


class OddImages(NamedTuple):
    """Odd images, and how many were found for each reason."""

    suspects: tuple[Suspect, ...]
    """At most `MOST`, the most conspicuous for each reason."""
    counts: Mapping[str, int]


# The column whose values below the limit are odd, if they also stand out. The most telling reason
# first, as an image gets only one. The limit of luma (0.32) is that of CleanVision
# 0.3; blurring a photograph by one pixel leaves a sharpness of 0.3.
_LIMITS: Mapping[Reason, tuple[str, float]] = {
    "blank": ("contrast", 0.01),
    "dark": ("brightness_high", 0.32),
    "bright": ("darkness_high", 0.1),
    "blurred": ("sharpness", 0.4),
}


def find_odd(columns: Columns, features: Features | None = None) -> OddImages:
    """Find odd images.

    `decided` ones of the `columns`, those of the table of images, are left out; `features` are
    embeddings.
    """
    columns = {**columns, "darkness_high": 1 - columns["brightness_low"].astype(np.float64)}
    scores = {
        reason: _keep_odd(_score(columns[column].astype(np.float64), limit))
        for reason, (column, limit) in _LIMITS.items()
    }
    if features is not None:
        train = np.flatnonzero(columns["split"] == TRAIN)
        scores["outlier"] = _keep_odd(_score_outliers(features, train))
    return _select(columns, scores)


def _keep_odd(scores: Floats) -> tuple[Ints, Floats]:
    """Return the rows of the scores above 0, and these scores."""
    rows = np.flatnonzero(scores > 0)
    return rows, scores[rows]


def _score(values: Floats, limit: float) -> Floats:
    """Return 0.5 to 1 for odd values, the lowest ones highest; 0 for others and NaN."""
    odd = (values < limit) & (_deviate(np.log2(np.maximum(values, _TINIEST))) < -_STANDS_OUT)
    return np.where(odd, 1 - 0.5 * values / limit, 0)


def _deviate(values: Floats) -> Floats:
    """Return the distances from the median in robust standard deviations."""
    known = values[np.isfinite(values)]
    center = np.median(known) if known.size else 0.0
    deviation = _TO_DEVIATION * np.median(np.abs(known - center)) if known.size else 0.0
    return (values - center) / max(deviation, _LEAST_DEVIATION)


def _score_outliers(features: Features, train: Ints) -> Floats:
    """Score images that are far from their nearest training images."""
    if len(train) <= _NEAREST:
        return np.zeros(len(features))
    step = -(-len(train) // _REFERENCES)
    distances = np.empty(len(features))
    for start in range(0, len(features), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(features)))
        near = find_neighbors(features, rows, among=train[::step], most=_NEAREST)
        distances[rows] = 1 - near.similarities.mean(axis=1).astype(np.float64)
        release_pages(features)
    far = _deviate(np.log2(np.maximum(distances, _TINIEST)))
    return np.where(far > _FAR, 1 - 0.5 * _FAR / np.maximum(far, _FAR), 0)


def _select(columns: Columns, scores: Mapping[Reason, tuple[Ints, Floats]]) -> OddImages:
    """Give each image its first reason, and keep the highest scores for each."""
    suspects: list[Suspect] = []
    counts: dict[str, int] = {}
    taken = np.array(columns.get("decided", np.zeros(len(columns["path"]), bool)))
    for reason, (rows, of_rows) in scores.items():
        left = ~taken[rows]
        rows, of_rows = rows[left], of_rows[left]
        taken[rows] = True
        if len(rows):
            counts[reason] = len(rows)
        best = np.argsort(-of_rows, kind="stable")[:_MOST_EACH]
        texts = (columns[name][rows[best]].tolist() for name in _IDENTITY)
        for key, path, split, label, score in zip(*texts, of_rows[best].tolist(), strict=True):
            suspects.append(Suspect(key, path, split, label, reason, score))
    suspects.sort(key=lambda suspect: (-suspect.score, suspect.path))
    return OddImages(tuple(suspects[:MOST]), counts)
