"""Find near duplicates among a million images without comparing each with each.

A perceptual hash of 64 bits, the signs of the low frequencies of a small picture, is about the same
for copies. Sorted by different bits of it, copies lie next to one another in some of many orders
(Charikar 2002). Neighbors with similar hashes are then compared by the detail of their pictures:
photographs of similar scenes agree in their coarse structure, only copies also agree in detail.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from components.host.machine import release_pages
from components.images.check_result import CheckedImage
from components.images.transcode import THUMBPRINT_SIDE as SIDE

Rows = NDArray[np.uint8]
"""A picture of SIDE * SIDE levels a row, and the shorter side of its image, pixels, up to 255."""
Pairs = NDArray[np.int64]
"""Indices of rows, [pairs, 2]."""

ROW_BYTES = SIDE * SIDE + 1
NO_PICTURE = bytes(ROW_BYTES)

LEAST_DETAIL = 0.5
"""Least correlation of the detail of near duplicates. On CIFAR-10 strangers reach 0.42, and pairs
that people judge to be near duplicates have 0.46 to 0.84."""
_LEAST_OVERALL = 0.75
# Below this shorter side, pixels, there is no detail: two zeros of the digits reach 0.994.
_DETAILED, _LEAST_SMALL = 32, 0.997
# Detail below this level is noise of JPEG, squared levels.
_NOISE = 4.0
_MARGIN = slice(5, -5)
# Pictures with less contrast, levels, are blank: only noise would be compared.
_LEAST_CONTRAST = 4.0

# Of 64 bits, copies differ in up to about 14, strangers in about 30.
_BITS, _MOST_DIFFERENT = 64, 16
_ORDERS, _NEIGHBORS = 16, 3
_COUNTS = np.array([number.bit_count() for number in range(2**16)], np.uint8)
# Pairs and pictures that are compared and hashed at a time. Reading a row maps 64 KiB around it.
_PAIRS, _PICTURES = 1024, 8192


def picture_row(image: CheckedImage) -> bytes:
    """Return the picture of an image, and the shorter side of the image."""
    if not image.thumbprint:
        return NO_PICTURE
    return image.thumbprint + bytes([min(image.height, image.width, 255)])


def find_groups(rows: Rows) -> NDArray[np.int64]:
    """Return the smallest index of the group of each row; pairs of near duplicates connect them.

    The rows may be mapped from a file.
    """
    useful, hashes = _hash(rows)
    groups = np.arange(len(rows))
    compared = np.empty(0, np.int64)
    for near in _find_neighbors(hashes):
        numbers = np.setdiff1d(near.min(axis=1) << 32 | near.max(axis=1), compared)
        pairs = useful[np.stack([numbers >> 32, numbers & 0xFFFFFFFF], axis=1)]
        is_open = groups[pairs[:, 0]] != groups[pairs[:, 1]]
        compared = np.concatenate([compared, numbers[is_open]])
        pairs = pairs[is_open]
        alike = pairs[compare(rows, pairs) >= LEAST_DETAIL]
        if len(alike):
            known = np.stack([np.arange(len(rows)), groups], axis=1)
            groups = connect(len(rows), np.concatenate([known, alike]))
    return groups


def connect(count: int, pairs: Pairs) -> NDArray[np.int64]:
    """Return for each of `count` numbers the smallest one that pairs connect it with."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = (np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1]))
    labels = connected_components(coo_array(edges, shape=(count, count)), directed=False)[1]
    smallest: NDArray[np.int64] = np.unique(labels, return_index=True)[1][labels]
    return smallest


def _hash(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the indices of rows that are not blank, and their hashes."""
    order = sorted(np.ndindex(12, 12), key=lambda place: (max(place), place))[1 : _BITS + 1]
    # Neighboring frequencies are alike in many images, so each order begins with distant ones.
    down, right = np.random.default_rng(0).permutation(np.array(order)).T
    places = (np.arange(SIDE) + 0.5) / SIDE
    cosines = np.cos(np.pi * np.arange(12)[:, None] * places).astype(np.float32)
    useful, hashes = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for start in range(0, len(rows), _PICTURES):
        pictures = rows[start : start + _PICTURES, :-1].astype(np.float32)
        kept = np.flatnonzero(pictures.std(axis=1) >= _LEAST_CONTRAST)
        waves = cosines @ pictures[kept].reshape(-1, SIDE, SIDE) @ cosines.T
        useful.append(kept + start)
        hashes.append(np.packbits(waves[:, down, right] > 0).view(np.uint64))
        release_pages(rows)
    return np.concatenate(useful), np.concatenate(hashes)


def _find_neighbors(hashes: NDArray[np.uint64]) -> Iterator[Pairs]:
    """Yield pairs of hashes that lie next to each other in an order, and differ in few bits."""
    for number in range(_ORDERS):
        first = np.uint64(number * _BITS // _ORDERS)
        # Sorted by other first bits. In two steps, as a shift by all 64 bits is undefined.
        keys = hashes << first | hashes >> np.uint64(1) >> np.uint64(_BITS - 1) - first
        order = np.argsort(keys)
        pairs = [np.empty((0, 2), np.int64)]
        for step in range(1, _NEIGHBORS + 1):
            different = hashes[order[step:]] ^ hashes[order[:-step]]
            close = np.flatnonzero(_count_bits(different) <= _MOST_DIFFERENT)
            pairs.append(np.stack([order[close], order[close + step]], axis=1))
        yield np.concatenate(pairs)


def _count_bits(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    # NumPy 1 has no function for it.
    counts: NDArray[np.uint8] = _COUNTS[words.view(np.uint16).reshape(-1, 4)].sum(
        axis=1, dtype=np.uint8
    )
    return counts


def compare(rows: Rows, pairs: Pairs) -> NDArray[np.float32]:
    """Return the likeness of each pair of rows, -1 to 1; `LEAST_DETAIL` makes near duplicates."""
    scores = np.empty(len(pairs), np.float32)
    for start in range(0, len(pairs), _PAIRS):
        one, other = (rows[column] for column in pairs[start : start + _PAIRS].T)
        scores[start : start + _PAIRS] = _compare(one, other)
        release_pages(rows)
    return scores


def _compare(one: Rows, other: Rows) -> NDArray[np.float32]:
    pictures = [r[:, :-1].reshape(-1, SIDE, SIDE).astype(np.float32) for r in (one, other)]
    details = [_find_detail(picture) for picture in pictures]
    # Frames alone make the margins alike.
    inner, inner_details = (
        [picture[:, _MARGIN, _MARGIN] for picture in pair] for pair in (pictures, details)
    )
    detail = np.minimum(_correlate(*details), _correlate(*inner_details))
    scores = np.where(_correlate(*inner) >= _LEAST_OVERALL, detail, 0)
    # Small images must be the same.
    is_small, same = np.maximum(one[:, -1], other[:, -1]) < _DETAILED, _correlate(*pictures)
    return np.where(is_small, np.where(same >= _LEAST_SMALL, same, 0), scores)


def _find_detail(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the high frequencies, with the same contrast everywhere."""
    high = pictures - _blur(pictures, _BLUR)
    detail: NDArray[np.float32] = high / np.sqrt(_blur(high * high, _BLUR @ _BLUR) + _NOISE)
    return detail


def _blur(pictures: NDArray[np.float32], matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    for _ in range(2):
        blurred = pictures.reshape(-1, SIDE) @ matrix.T
        pictures = blurred.reshape(-1, SIDE, SIDE).swapaxes(1, 2)
    return pictures


def _make_blur() -> NDArray[np.float32]:
    """Return the matrix that blurs a row of pixels twice with the weights 1, 2 and 1."""
    blur = (np.eye(SIDE) * 2 + np.eye(SIDE, k=1) + np.eye(SIDE, k=-1)) / 4
    blur[0, 0] = blur[-1, -1] = 3 / 4
    return (blur @ blur).astype(np.float32)


_BLUR = _make_blur()


def _correlate(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    a, b = (p.reshape(len(p), -1) - p.mean(axis=(1, 2))[:, None] for p in (one, other))
    squares = (a * a).sum(axis=1) * (b * b).sum(axis=1)
    correlation: NDArray[np.float32] = (a * b).sum(axis=1) / np.sqrt(np.maximum(squares, 1e-6))
    return correlation
