"""Find images that are almost the same.

Finding them among a million images takes no comparison of each with each. A perceptual hash of 64
bits, the signs of the low frequencies of a small picture, is about the same for copies. Sorted by
different bits of it, copies lie next to one another in some of many orders (Charikar 2002).
Neighbors with similar hashes are then compared by the detail of their pictures: photographs of
similar scenes agree in their coarse structure, only copies also agree in detail.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from components.host.machine import release_pages
from components.images.transcode import THUMBPRINT_SIDE as SIDE
from components.ingest.plan.assignment import Assignment, Images
from components.ingest.plan.facts import ROW_BYTES, Rows, plan_path, read_pictures
from components.ingest.source.listing import ImageFile

Pairs = NDArray[np.int64]
"""Indices of rows, [pairs, 2]."""

_LEAST_DETAIL = 0.5
"""Least correlation of the detail of near duplicates. On CIFAR-10 strangers reach 0.42, and pairs
that people judge to be near duplicates have 0.46 to 0.84."""
_LEAST_OVERALL = 0.75
# Below this shorter side, pixels, there is no detail: two zeros of the digits reach 0.994.
_DETAILED, _LEAST_SMALL = 32, 0.997
# Detail below this level is noise of JPEG, squared levels.
_NOISE = 4.0
_MARGIN = slice(5, -5)
# Symmetric matrices that blur a row of pixels two and four times with the weights 1, 2 and 1.
_PADDED = np.pad(np.eye(SIDE, dtype=np.float32), ((1, 1), (0, 0)), "edge")
_WEIGHTS = (_PADDED[:-2] + 2 * _PADDED[1:-1] + _PADDED[2:]) / 4
_BLUR, _WIDE_BLUR = (np.linalg.matrix_power(_WEIGHTS, times) for times in (2, 4))
# Pictures with less contrast, levels, are blank: only noise would be compared.
_LEAST_CONTRAST = 4.0

# Of 64 bits, copies differ in up to about 14, strangers in about 30.
_BITS, _MOST_DIFFERENT = 64, 16
_ORDERS, _NEIGHBORS = 16, 3
_COUNTS = np.array([number.bit_count() for number in range(2**16)], np.uint8)
# Of a digest.
_BYTES = 32
# Pairs and pictures that are compared and hashed at a time. Reading a row maps 64 KiB around it.
_PAIRS, _PICTURES = 1024, 8192

Files = Mapping[str, Sequence[ImageFile]]


class DuplicateCluster(NamedTuple):
    """Different images that show almost the same."""

    digests: tuple[str, ...]
    likeness: tuple[float, ...]
    """Likeness of each image and the first one, at most 1."""


def rank(key: str) -> str:
    """Return a sort key that has nothing to do with the split, which the first digits decide."""
    return key[::-1]


def find_clusters(images: Images, repeated: Set[str], examples_uri: str) -> list[DuplicateCluster]:
    """Compare all images; return the clusters in the order of their first digests.

    `repeated` are the digests of images that several files contain.
    """
    content, rows = _read_rows(examples_uri, images, repeated)
    groups = find_groups(rows)
    members: dict[int, list[int]] = {}
    for index in np.flatnonzero(groups != np.arange(len(groups))).tolist():
        members.setdefault(int(groups[index]), []).append(index)
    clusters = []
    for smallest, larger in members.items():
        digests = {i: content[i * _BYTES :][:_BYTES].hex() for i in (smallest, *larger)}
        first, *others = sorted(digests, key=lambda index: rank(digests[index]))
        scores = compare(rows, np.array([(first, other) for other in others]))
        likeness = (1.0, *(round(float(score), 3) for score in np.clip(scores, 0, 1)))
        clusters.append(DuplicateCluster(tuple(digests[i] for i in (first, *others)), likeness))
    return sorted(clusters, key=lambda cluster: cluster.digests)


def _read_rows(examples_uri: str, images: Images, repeated: Set[str]) -> tuple[bytes, Rows]:
    """Return the distinct digests of all images, 32 bytes each, and the picture of each.

    The pictures are mapped from a temporary file, so that a million of them need no memory.
    """
    digests, seen = bytearray(), set[str]()
    with tempfile.TemporaryFile() as joined:
        for plan in images.facts:
            kept = []
            for number, fact in enumerate(plan.facts):
                if images.has(fact) and fact.sha256 not in seen:
                    if fact.sha256 in repeated:
                        seen.add(fact.sha256)
                    digests += bytes.fromhex(fact.sha256)
                    kept.append(number)
            joined.write(read_pictures(plan_path(examples_uri, plan.plan))[kept].tobytes())
        joined.flush()
        shape = (len(digests) // _BYTES, ROW_BYTES)
        if not digests:
            return b"", np.empty(shape, np.uint8)  # An empty file cannot be mapped.
        return bytes(digests), np.memmap(joined, np.uint8, "r", shape=shape)


def find_files(clusters: Iterable[DuplicateCluster], images: Images) -> Files:
    """Return digest → files, in path order, of all images in clusters."""
    wanted = {sha256 for cluster in clusters for sha256 in cluster.digests}
    files: dict[str, list[ImageFile]] = {}
    for file, sha256 in images:
        if sha256 in wanted:
            files.setdefault(sha256, []).append(file)
    return {sha256: sorted(copies) for sha256, copies in files.items()}


def list_clusters(
    clusters: Sequence[DuplicateCluster], files: Files, after: Assignment
) -> list[dict[str, Any]]:
    """Return the lines of the list of near duplicates; `files` is what `find_files` returns."""
    lines = []
    for number, cluster in enumerate(clusters, start=1):
        likeness = dict(zip(cluster.digests, cluster.likeness, strict=True))
        images = [(file, sha256) for sha256 in cluster.digests for file in files[sha256]]
        line = {
            "cluster": number,
            "paths": [file.path for file, _ in images],
            "labels": [after.label_of(*image) for image in images],
            "splits": [after.rule.split_of(*image) for image in images],
            "sha256": [sha256 for _, sha256 in images],
            "likeness": [likeness[sha256] for _, sha256 in images],
        }
        lines.append(line)
    return lines


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
        alike = pairs[compare(rows, pairs) >= _LEAST_DETAIL]
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
            # NumPy 1 cannot count bits.
            bits = _COUNTS[different.view(np.uint16).reshape(-1, 4)].sum(axis=1, dtype=np.uint8)
            close = np.flatnonzero(bits <= _MOST_DIFFERENT)
            pairs.append(np.stack([order[close], order[close + step]], axis=1))
        yield np.concatenate(pairs)


def compare(rows: Rows, pairs: Pairs) -> NDArray[np.float32]:
    """Return the likeness of each pair of rows, -1 to 1; at most 1."""
    scores = np.empty(len(pairs), np.float32)
    for start in range(0, len(pairs), _PAIRS):
        left, right = (rows[column] for column in pairs[start : start + _PAIRS].T)
        scores[start : start + _PAIRS] = _compare(left, right)
        release_pages(rows)
    return scores


def _compare(left: Rows, right: Rows) -> NDArray[np.float32]:
    pictures = [r[:, :-1].reshape(-1, SIDE, SIDE).astype(np.float32) for r in (left, right)]
    details = [_find_detail(picture) for picture in pictures]
    # Frames alone make the margins alike.
    inner, inner_details = (
        [picture[:, _MARGIN, _MARGIN] for picture in pair] for pair in (pictures, details)
    )
    detail = np.minimum(_correlate(*details), _correlate(*inner_details))
    scores = np.where(_correlate(*inner) >= _LEAST_OVERALL, detail, 0)
    # Small images must be the same.
    is_small, same = np.maximum(left[:, -1], right[:, -1]) < _DETAILED, _correlate(*pictures)
    return np.where(is_small, np.where(same >= _LEAST_SMALL, same, 0), scores)


def _find_detail(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the high frequencies, with the same contrast everywhere."""
    high = pictures - _BLUR @ pictures @ _BLUR
    contrast = _WIDE_BLUR @ (high * high) @ _WIDE_BLUR
    detail: NDArray[np.float32] = high / np.sqrt(contrast + _NOISE)
    return detail


def _correlate(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    a, b = (p.reshape(len(p), -1) - p.mean(axis=(1, 2))[:, None] for p in (left, right))
    squares = (a * a).sum(axis=1) * (b * b).sum(axis=1)
    correlation: NDArray[np.float32] = (a * b).sum(axis=1) / np.sqrt(np.maximum(squares, 1e-6))
    return correlation
