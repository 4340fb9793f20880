"""How alike two pictures are: aligned, and compared by their detail.

Photographs of similar scenes agree in their coarse structure, and often in their frames. Only
copies also agree in their detail, once a crop is undone and the contrast is evened out.
"""

import numpy as np
from numpy.typing import NDArray

from components.images.thumbprint import SIDE

Floats = NDArray[np.float32]

LEAST_DETAIL = 0.5
"""Least correlation of the detail of near duplicates. On CIFAR-10 strangers reach 0.42, and pairs
that people judge to be near duplicates have 0.46 to 0.84."""
_LEAST_OVERALL = 0.75
# Least correlation of coarse pictures before they are aligned, which takes most of the time: three
# in four candidates that fail have less, and one in a thousand crops that pass.
_LEAST_COARSE, _COARSE = 0.65, 8
# Below this shorter side, pixels, there is no detail: two zeros of the digits reach 0.994.
_DETAILED = 32
_LEAST_SMALL = 0.997

_PLACES = ((np.arange(SIDE) - (SIDE - 1) / 2) / (SIDE / 2)).astype(np.float32)
_STEPS = 4
# Largest change of scale and largest shift, as fractions of half the side.
_MOST_CHANGE = 0.13
# Detail below this level is noise of JPEG, squared levels.
_NOISE = 4.0
_MARGIN = 5
_BLOCK = 256


def detail_likeness(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> Floats:
    """Return the likeness, -1 to 1, of each pair of pictures, uint8 [pairs, SIDE * SIDE].

    Pictures of different content score 0 even if their detail agrees.
    """
    scores = np.zeros(len(one), np.float32)
    close = np.flatnonzero(_correlate_coarse(one, other) >= _LEAST_COARSE)
    for start in range(0, len(close), _BLOCK):
        part = close[start : start + _BLOCK]
        a, b = (p[part].reshape(-1, SIDE, SIDE).astype(np.float32) for p in (one, other))
        found = _score(a, b, np.ones(a.shape, bool))
        if (rest := np.flatnonzero(found < LEAST_DETAIL)).size:
            # A crop shows part of the other image, whichever of the two it is.
            tries = (_score_aligned(x[rest], y[rest]) for x, y in ((a, b), (b, a)))
            found[rest] = np.maximum.reduce([found[rest], *tries])
        scores[part] = found
    return scores


def likeness(one: NDArray[np.uint8], other: NDArray[np.uint8], sides: NDArray[np.uint8]) -> Floats:
    """Return the likeness of each pair, whose larger image has a shorter side of `sides`, pixels.

    Pairs of `LEAST_DETAIL` or more are near duplicates. Small images must be the same.
    """
    scores = np.empty(len(one), np.float32)
    small = sides < _DETAILED
    scores[~small] = detail_likeness(one[~small], other[~small])
    a, b = (p[small].reshape(-1, SIDE, SIDE).astype(np.float32) for p in (one, other))
    same = _correlate(a, b, np.ones(a.shape, np.float32))
    scores[small] = np.where(same >= _LEAST_SMALL, same, 0)
    return scores


def _correlate_coarse(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> Floats:
    blocks = (-1, _COARSE, SIDE // _COARSE, _COARSE, SIDE // _COARSE)
    a, b = (p.reshape(blocks).mean((2, 4), dtype=np.float32) for p in (one, other))
    return _correlate(a, b, np.ones(a.shape, np.float32))


def _score_aligned(moving: Floats, fixed: Floats) -> Floats:
    return _score(*_align(moving, fixed))


def _score(one: Floats, other: Floats, valid: NDArray[np.bool_]) -> Floats:
    """Correlate the detail of aligned pictures, [pairs, SIDE, SIDE], with and without margins."""
    weights = valid.astype(np.float32)
    inner = weights.copy()
    inner[:, :_MARGIN] = inner[:, -_MARGIN:] = 0
    inner[:, :, :_MARGIN] = inner[:, :, -_MARGIN:] = 0
    details = _detail(one), _detail(other)
    # Frames alone make the margins alike.
    detail = np.minimum(_correlate(*details, weights), _correlate(*details, inner))
    return np.where(_correlate(one, other, inner) >= _LEAST_OVERALL, detail, 0)


def _detail(pictures: Floats) -> Floats:
    """Return the high frequencies, with the same contrast everywhere."""
    high = pictures - _blur(pictures, times=2)
    even: Floats = high / np.sqrt(_blur(high * high, times=4) + _NOISE)
    return even


def _blur(pictures: Floats, *, times: int) -> Floats:
    for _ in range(times):
        for axis in (1, 2):
            blurred = 2 * pictures
            # Views with the axis in front of the pictures' other one.
            before, after = (array.swapaxes(1, axis) for array in (pictures, blurred))
            for edge, inner, source in (
                (0, slice(1, None), slice(-1)),
                (-1, slice(-1), slice(1, None)),
            ):
                after[:, inner] += before[:, source]
                after[:, edge] += before[:, edge]
            pictures = blurred / 4
    return pictures


def _correlate(one: Floats, other: Floats, weights: Floats) -> Floats:
    total = weights.sum((1, 2), keepdims=True)
    a, b = ((p - (p * weights).sum((1, 2), keepdims=True) / total) * weights for p in (one, other))
    product, squares = (a * b).sum((1, 2)), (a * a).sum((1, 2)) * (b * b).sum((1, 2))
    result: Floats = product / np.sqrt(np.maximum(squares, 1e-6))
    return result


def _align(moving: Floats, fixed: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Scale and shift `moving` until it fits `fixed`; return both, and where there are pixels.

    Lucas and Kanade 1981, with a factor and an offset for brightness.
    """
    change = np.zeros((len(moving), 4), np.float32)
    coarse = [_blur(pictures, times=2) for pictures in (moving, fixed)]
    damping = np.diag([50, 50, 50, 50, 0.01, 0.01])
    for step in range(_STEPS):
        source, target = coarse if step < _STEPS / 2 else (moving, fixed)
        warped, valid = _warp(source, change)
        down, right = (g * (SIDE / 2) for g in np.gradient(warped, axis=(1, 2)))
        columns = (right * _PLACES, right, down * _PLACES[:, None], down, warped, None)
        basis = np.stack([valid if c is None else c * valid for c in columns], 1)
        basis = basis.reshape(len(moving), 6, -1).astype(np.float32)
        normal = basis @ basis.swapaxes(1, 2) + damping
        right_side = basis @ (target * valid).reshape(len(moving), -1, 1)
        solved = _solve(normal, right_side)
        gain = np.clip(solved[:, 4:5], 0.3, 3)
        change = np.clip(change + solved[:, :4] / gain, -_MOST_CHANGE, _MOST_CHANGE)
    warped, valid = _warp(moving, change)
    return warped, fixed, valid


def _solve(matrices: NDArray[np.float64], right: Floats) -> NDArray[np.float64]:
    """Solve a positive definite system of each pair; NumPy's own call takes 10 times as long."""
    rows = np.concatenate([matrices, right], axis=2).transpose(1, 2, 0)
    for k in range(len(rows)):
        rows[k] /= rows[k, k].copy()
        for other in range(len(rows)):
            if other != k:
                rows[other] -= rows[other, k].copy() * rows[k]
    return rows[:, -1].T


def _warp(pictures: Floats, change: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Sample at the changed places; return also which of them lie within the picture."""
    every = np.arange(len(pictures))[:, None, None]
    ends = []
    for axis in (2, 0):
        scale, shift = change[:, axis : axis + 1], change[:, axis + 1 : axis + 2]
        place = (_PLACES * (1 + scale) + shift) * (SIDE / 2) + (SIDE - 1) / 2
        inside = (place >= -0.5) & (place <= SIDE - 0.5)
        low = np.clip(np.floor(place), 0, SIDE - 2).astype(np.int64)
        ends.append((low, np.clip(place - low, 0, 1).astype(np.float32), inside))
    (y, down, rows), (x, right, columns) = ends
    y, down, x, right = y[:, :, None], down[:, :, None], x[:, None], right[:, None]
    above, below = (
        pictures[every, line, x] * (1 - right) + pictures[every, line, x + 1] * right
        for line in (y, y + 1)
    )
    warped: Floats = above * (1 - down) + below * down
    return warped, rows[:, :, None] & columns[:, None]
