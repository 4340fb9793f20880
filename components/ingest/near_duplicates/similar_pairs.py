"""Find near duplicates among a million pictures without comparing each with each.

A code of 128 bits, the signs of the low frequencies (a perceptual hash), is about the same for
copies. Sorted by a few of its bits, copies lie next to one another in some of many orders
(Charikar 2002); neighbors are then compared by their pictures. NumPy suffices: libraries of
perceptual hashes neither search nor verify.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from components.host.machine import release_pages
from components.images.thumbprint import SIDE
from components.ingest.near_duplicates.comparer import Comparer, number_pairs
from components.ingest.near_duplicates.likeness import LEAST_DETAIL
from components.ingest.near_duplicates.picture_rows import Rows

Codes = NDArray[np.uint64]

_BITS = 128
# Of 128 bits, copies differ in about 20, strangers in 55. Strangers are closer in larger folders:
# compare pairs that differ in at most 42 bits of 1,000 images, or 35 of a million.
_MOST_DIFFERENT, _FEWER_PER_TENFOLD = 50.0, 2.5
# Orders, and the number of neighbors on each side that are compared in each.
_ORDERS, _NEIGHBORS = 32, 3
# A million images take a minute with half of the orders.
_MANY = 200_000
# Bits that decide an order, of as many of the lowest frequencies; the rest numbers the images.
_SORTED_BITS, _SORTABLE_BITS = 24, 35
_INDEX_BITS = 64 - _SORTED_BITS
# Pictures with less contrast, levels, are blank: only noise would be compared.
_LEAST_CONTRAST = 4.0
# An image that resembles so many others without being their copy is not compared further.
_MOST_FAILURES = 64
_BLOCK = 8192
# Crops of up to a twentieth at each edge are closer to the image without a fortieth at each edge.
_ZOOM = 0.95


def find_groups(rows: Rows, comparer: Comparer | None = None) -> NDArray[np.int64]:
    """Return the smallest index of the group of each row, see `read_pictures`.

    Rows in the same group are connected by pairs of near duplicates. Takes 48 bytes a row, besides
    `rows` themselves, which may be mapped from a file.
    """
    comparer = comparer or Comparer(rows)
    parents = np.arange(len(rows))
    failures = np.zeros(len(rows), np.int32)
    seen = np.empty(0, np.int64)
    useful, codes = _encode(rows)
    for near in _find_neighbors(codes):
        pairs = np.sort(useful[near], axis=1)
        pairs = pairs[np.unique(number_pairs(pairs), return_index=True)[1]]
        pairs = pairs[parents[pairs[:, 0]] != parents[pairs[:, 1]]]
        pairs = pairs[(failures[pairs] < _MOST_FAILURES).all(axis=1)]
        pairs = pairs[~np.isin(number_pairs(pairs), seen)]
        alike = comparer.score(pairs) >= LEAST_DETAIL
        failed = pairs[~alike]
        np.add.at(failures, failed, 1)
        seen = np.concatenate([seen, number_pairs(failed)])
        for one, other in pairs[alike]:
            _join(parents, one, other)
        _flatten(parents)
    return parents


def _join(parents: NDArray[np.int64], one: int, other: int) -> None:
    while one != parents[one]:
        one = parents[one]
    while other != parents[other]:
        other = parents[other]
    parents[max(one, other)] = min(one, other)


def _flatten(parents: NDArray[np.int64]) -> None:
    while not np.array_equal(further := parents[parents], parents):
        parents[:] = further


def _encode(rows: Rows) -> tuple[NDArray[np.int64], Codes]:
    """Return the indices of rows that are not blank, and the codes of each as seen and zoomed in.

    Codes are uint64 [images, 2, 2].
    """
    order = sorted(np.ndindex(12, 12), key=lambda uv: (max(uv), uv))[1 : _BITS + 1]
    wanted = np.array(order).T
    places = (np.arange(SIDE) + 0.5) / SIDE
    frequencies = np.arange(12)[:, None]
    useful, codes = [np.empty(0, np.int64)], [np.empty((0, 2, 2), np.uint64)]
    cosines = [
        np.cos(np.pi * frequencies * places).astype(np.float32) @ _zoom(by) for by in (1, _ZOOM)
    ]
    for start in range(0, len(rows), _BLOCK):
        pictures = rows[start : start + _BLOCK, :-1].astype(np.float32)
        kept = np.flatnonzero(pictures.std(axis=1) >= _LEAST_CONTRAST)
        squares = pictures[kept].reshape(-1, SIDE, SIDE)
        signs = [(c @ squares @ c.T)[:, wanted[0], wanted[1]] > 0 for c in cosines]
        packed = np.packbits(np.stack(signs, 1), axis=-1, bitorder="little")
        useful.append(kept + start)
        codes.append(packed.view(np.uint64))
        release_pages(rows)
    return np.concatenate(useful), np.concatenate(codes)


def _zoom(by: float) -> NDArray[np.float32]:
    """Return the matrix that samples the middle part, a fraction `by`, of a row of pixels."""
    places = ((np.arange(SIDE) + 0.5) / SIDE - 0.5) * by * SIDE + (SIDE - 1) / 2
    distance = np.abs(places[:, None] - np.arange(SIDE))
    return np.maximum(0, 1 - distance).astype(np.float32)


def _find_neighbors(codes: Codes) -> Iterator[NDArray[np.int64]]:
    """Yield pairs of images, [pairs, 2], whose codes are similar, in some of which are all."""
    views = codes.reshape(-1, 2)
    octets = views.astype("<u8", copy=False).view(np.uint8)
    most = _MOST_DIFFERENT - _FEWER_PER_TENFOLD * np.log10(max(len(codes), 1))
    generator = np.random.default_rng(0)
    for _ in range(_ORDERS if len(codes) < _MANY else _ORDERS // 2):
        keys = np.arange(len(views), dtype=np.uint64)
        for number, table in enumerate(_tabulate(generator.permutation(_SORTABLE_BITS))):
            keys |= table[octets[:, number]]
        keys.sort()
        keys &= np.uint64(2**_INDEX_BITS - 1)
        found = [np.empty((0, 2), np.int64)]
        for start in range(0, len(keys), _BLOCK):
            # With the neighbors of the last one.
            places = keys[start : start + _BLOCK + _NEIGHBORS].astype(np.int64)
            ordered = views[places]
            for step in range(1, min(_NEIGHBORS + 1, len(places))):
                last = min(_BLOCK, len(places) - step)
                different = _count_bits(ordered[step : step + last] ^ ordered[:last])
                close = np.flatnonzero(different <= most)
                found.append(np.stack([places[close], places[close + step]], 1) // 2)
        pairs = np.concatenate(found)
        yield pairs[pairs[:, 0] != pairs[:, 1]]


def _tabulate(order: NDArray[np.int64]) -> Codes:
    """Return what each value of each byte of a code adds to its key; bits in `order` decide."""
    tables = np.zeros((-(-_SORTABLE_BITS // 8), 256), np.uint64)
    values = np.arange(256, dtype=np.uint64)
    for place, bit in enumerate(order[:_SORTED_BITS].tolist()):
        is_set = values >> np.uint64(bit % 8) & np.uint64(1)
        tables[bit // 8] |= is_set << np.uint64(63 - place)
    return tables


def _count_bits(words: Codes) -> NDArray[np.uint64]:
    """Count the bits of each pair of words, which are overwritten.

    NumPy 1 has no function for it. In place takes a quarter of the time.
    """
    masks = (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F)
    first, second, third = map(np.uint64, masks)
    shifted = words >> np.uint64(1)
    words -= np.bitwise_and(shifted, first, out=shifted)
    np.right_shift(words, np.uint64(2), out=shifted)
    words &= second
    words += np.bitwise_and(shifted, second, out=shifted)
    words += np.right_shift(words, np.uint64(4), out=shifted)
    words &= third
    total: NDArray[np.uint64] = words[:, 0] + words[:, 1]
    total *= np.uint64(0x0101010101010101)
    total >>= np.uint64(56)
    return total
