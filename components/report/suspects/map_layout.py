"""Places images on a map by their features: similar images lie close together.

Neighbors attract each other and random others repel, as in UMAP. On the digits the classes part
about as well as with scikit-learn's t-SNE, which takes ten times as long; two principal components
leave half of them on top of each other.
"""

import numpy as np
import numpy.typing as npt

from components.report.suspects.neighbors import Features, find_neighbors, normalize

Places = npt.NDArray[np.float64]

_NEIGHBORS = 15
_STEPS = 200
_REPELLING = 3
# Half the width of the first layout, in distances at which forces change.
_SPREAD = 10.0
_FASTEST = 4.0
# Principal components are computed from this many images, and neighbors from this many components.
_SAMPLED, _COMPONENTS = 1000, 48
# Single images far away would shrink the rest.
_OUTLYING = 0.2


def lay_out(features: Features, *, seed: int = 0) -> Places:
    """Return coordinates from 0 to 1, [rows, 2]; the same features give the same places."""
    count = len(features)
    if count < 2:
        return np.full((count, 2), 0.5)
    projected = _project(normalize(features))
    places = projected[:, :2] * (_SPREAD / max(float(np.abs(projected[:, :2]).max()), 1e-9))
    rows = np.arange(count)
    neighbors = find_neighbors(projected, rows, among=rows, most=min(_NEIGHBORS, count - 1)).rows
    random = np.random.default_rng(seed)
    # Rounding hides that sums differ in the last bits with the number of threads.
    return _scale(_move(np.round(places, 2), neighbors, random))


def _project(rows: npt.NDArray[np.float32]) -> Places:
    """Return the first principal components of centered features, each with a definite sign."""
    centered = rows - rows.mean(axis=0)
    step = -(-len(rows) // _SAMPLED)
    _, _, axes = np.linalg.svd(centered[::step], full_matrices=False)
    axes = axes[:_COMPONENTS]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    projected = centered @ (axes * np.sign(largest)).T
    return np.pad(projected, ((0, 0), (0, max(0, 2 - projected.shape[1])))).astype(np.float64)


def _move(places: Places, neighbors: npt.NDArray[np.int64], random: np.random.Generator) -> Places:
    """Let forces act for some steps, each shorter than the one before."""
    count, each = neighbors.shape
    sources, targets = np.repeat(np.arange(count), each), neighbors.ravel()
    for step in range(_STEPS):
        gaps = places[sources] - places[targets]
        pull = _limit(-2 * gaps / (1 + np.square(gaps).sum(axis=1, keepdims=True)))
        force = _sum_rows(sources, pull, count) - _sum_rows(targets, pull, count)
        for _ in range(_REPELLING):
            gaps = places - places[random.integers(0, count, count)]
            squares = np.square(gaps).sum(axis=1, keepdims=True)
            force += _limit(2 * gaps / ((0.01 + squares) * (1 + squares))) * (each / _REPELLING)
        places = places + (1 - step / _STEPS) * force / each
    return places


def _limit(force: Places) -> Places:
    return np.clip(force, -_FASTEST, _FASTEST)


def _sum_rows(rows: npt.NDArray[np.int64], values: Places, count: int) -> Places:
    columns = [np.bincount(rows, values[:, column], count) for column in (0, 1)]
    return np.stack(columns, axis=1)


def _scale(places: Places) -> Places:
    low, high = np.percentile(places, (_OUTLYING, 100 - _OUTLYING), axis=0)
    scaled = np.clip((places - low) / np.maximum(high - low, 1e-9), 0, 1)
    # Halfway to equal spacing, for room between the points of a tight group.
    ranks = places.argsort(axis=0, kind="stable").argsort(axis=0) / (len(places) - 1)
    mixed: Places = (scaled + ranks) / 2
    return mixed
