"""Find images that are almost the same, and keep them in one split.

Finding them among a million images takes no comparison of each with each. A perceptual hash of 64
bits, the signs of the low frequencies of a small picture, is about the same for copies. Sorted by
different bits of it, copies lie next to one another in some of many orders (Charikar 2002).
Neighbors with similar hashes are then compared by the detail of their pictures: photographs of
similar scenes agree in their coarse structure, only copies also agree in detail.
"""

import collections
import itertools
import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from components.contract.example import SPAN
from components.host.machine import release_pages
from components.images.transcode import THUMBPRINT_SIDE as SIDE
from components.ingest.plan.assignment import Assignment, PlanReport, each_image
from components.ingest.plan.facts import ROW_BYTES, Digests, Rows, plan_path, read_pictures
from components.ingest.plan.splits import key_of
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
# Pictures with less contrast, levels, are blank: only noise would be compared.
_LEAST_CONTRAST = 4.0

# Of 64 bits, copies differ in up to about 14, strangers in about 30.
_BITS, _MOST_DIFFERENT = 64, 16
_ORDERS, _NEIGHBORS = 16, 3
_COUNTS = np.array([number.bit_count() for number in range(2**16)], np.uint8)
# Pairs and pictures that are compared and hashed at a time. Reading a row maps 64 KiB around it.
_PAIRS, _PICTURES = 1024, 8192

# Larger clusters, such as the frames of a fixed camera, would make a split of their own; of a few
# images, so would a quarter.
_MOST, _MOST_FRACTION, _MOST_OF_FEW = 100, 0.01, 0.25
# A class of which more is in one cluster would have too few other images to be learned from.
_MOST_OF_CLASS = 0.75

Files = Mapping[str, Sequence[ImageFile]]


class DuplicateCluster(NamedTuple):
    """Different images that show almost the same."""

    digests: tuple[str, ...]
    likeness: tuple[float, ...]
    """Likeness of each image and the first one, at most 1."""


def rank(key: str) -> str:
    """Return a sort key that has nothing to do with the split, which the first digits decide."""
    return key[::-1]


def find_clusters(
    reports: Sequence[PlanReport], repeated: Set[str], examples_uri: str
) -> list[DuplicateCluster]:
    """Compare all images; return the clusters in the order of their first digests.

    `repeated` are the digests of images that several files contain.
    """
    digests, rows = _read_rows(examples_uri, reports, repeated)
    groups = find_groups(rows)
    counts = np.bincount(groups, minlength=1)
    members: dict[int, list[int]] = {}
    for index in np.flatnonzero(counts[groups] > 1).tolist():
        members.setdefault(int(groups[index]), []).append(index)
    clusters = []
    for indices in members.values():
        first, *others = sorted(indices, key=lambda index: rank(digests[index]))
        scores = compare(rows, np.array([(first, other) for other in others]))
        likeness = (1.0, *(round(float(score), 3) for score in np.clip(scores, 0, 1)))
        clusters.append(DuplicateCluster(tuple(digests[i] for i in (first, *others)), likeness))
    return sorted(clusters, key=lambda cluster: cluster.digests)


def _read_rows(
    examples_uri: str, reports: Sequence[PlanReport], repeated: Set[str]
) -> tuple[Digests, Rows]:
    """Return the distinct digests of all images, and the picture of each.

    The pictures are mapped from a temporary file, so that a million of them need no memory.
    """
    digests, seen = Digests(), set[str]()
    with tempfile.TemporaryFile() as joined:
        for report in reports:
            kept = []
            for number, sha256 in enumerate(report.digests):
                if sha256 and sha256 not in seen:
                    if sha256 in repeated:
                        seen.add(sha256)
                    digests.append(sha256)
                    kept.append(number)
            joined.write(read_pictures(plan_path(examples_uri, report.plan))[kept].tobytes())
        joined.flush()
        shape = (len(digests), ROW_BYTES)
        if not digests:
            return digests, np.empty(shape, np.uint8)  # An empty file cannot be mapped.
        return digests, np.memmap(joined, np.uint8, "r", shape=shape)


def _find_files(clusters: Iterable[DuplicateCluster], reports: Sequence[PlanReport]) -> Files:
    """Return digest → files, in path order, of all images in clusters."""
    wanted = {sha256 for cluster in clusters for sha256 in cluster.digests}
    files: dict[str, list[ImageFile]] = {}
    for file, sha256 in each_image(reports):
        if sha256 in wanted:
            files.setdefault(sha256, []).append(file)
    return {sha256: sorted(found) for sha256, found in files.items()}


class _Units:
    """Images that must stay together, by their keys (see `key_of`)."""

    def __init__(
        self, reports: Sequence[PlanReport], sets: Sequence[Sequence[str]], alone: Set[str]
    ) -> None:
        """Join sets of keys, which may overlap; digests in `alone` are keys of their own."""
        wanted = set(itertools.chain.from_iterable(sets))
        self.labels: dict[str, collections.Counter[str]] = {}
        self.spans: dict[str, int] = {}
        """Key → first span."""
        self.classes = collections.Counter[str]()
        for file, sha256 in each_image(reports) if wanted else ():
            if file.split is None:
                self.classes[file.label] += 1
                if (key := _key_of(file, sha256, alone)) in wanted:
                    self.labels.setdefault(key, collections.Counter())[file.label] += 1
                    span = int(file.columns.get(SPAN, 0))
                    self.spans[key] = min(span, self.spans.get(key, span))
        self.joined = self._join(sets)

    def _join(self, sets: Iterable[Sequence[str]]) -> list[list[str]]:
        # An image may have been dropped meanwhile.
        known = [[key for key in keys if key in self.labels] for keys in sets]
        names = list(dict.fromkeys(itertools.chain.from_iterable(known)))
        numbers = {key: number for number, key in enumerate(names)}
        pairs = [(numbers[a], numbers[b]) for keys in known for a, b in itertools.pairwise(keys)]
        roots = connect(len(names), np.array(pairs, np.int64).reshape(-1, 2)).tolist()
        joined: dict[int, list[str]] = {}
        for key, root in zip(names, roots, strict=True):
            joined.setdefault(root, []).append(key)
        return [keys for keys in joined.values() if len(keys) > 1]

    def count(self, keys: Iterable[str]) -> collections.Counter[str]:
        """Count the images of each class."""
        return sum((self.labels[key] for key in keys), collections.Counter())

    def is_too_large(self, keys: Sequence[str]) -> bool:
        """Return whether too many images would join the largest group of `keys`."""
        counts, images = [self.labels[key].total() for key in keys], self.classes.total()
        most = max(min(_MOST, int(_MOST_OF_FEW * images)), int(_MOST_FRACTION * images))
        return sum(counts) - max(counts) > most

    def fill_classes(
        self, keys: Sequence[str], counts: Mapping[str, int] | None = None
    ) -> list[str]:
        """Return the classes that have hardly any other images, unless one key has most of them.

        No model could know such a class without having seen one of these images. `counts` is class
        → images, if not all of `keys` count.
        """
        return sorted(
            label
            for label, count in (counts or self.count(keys)).items()
            if count > max(1, _MOST_OF_CLASS * self.classes[label])
            and 2 * max(self.labels[key][label] for key in keys) <= count
        )

    def bind(self, keys: Sequence[str], earlier: Mapping[str, str]) -> dict[str, str]:
        """Return key → the one that decides.

        A key of an earlier ingest or span decides, so that new images never change the split.
        """
        order = {key: (key not in earlier, self.spans[key], rank(key)) for key in keys}
        return dict.fromkeys(keys, min(keys, key=order.__getitem__))


def _key_of(file: ImageFile, sha256: str, alone: Set[str]) -> str:
    """Return the key of an image; digests in `alone` have left their groups."""
    return sha256 if sha256 in alone else key_of(file, sha256)


def bind_copies(
    copies: Files, reports: Sequence[PlanReport], earlier: Mapping[str, str]
) -> dict[str, str]:
    """Return what keeps copies of an image in one split, though they are in several groups.

    The groups become one: the key of each → the key that decides. If they are too large for that,
    or were in several splits before, the copies leave them: the digest of the image → itself.
    """
    sets = {
        sha256: list({key_of(file, sha256): 0 for file in files if file.split is None})
        for sha256, files in copies.items()
    }
    sets = {sha256: keys for sha256, keys in sets.items() if len(keys) > 1}
    units = _Units(reports, list(sets.values()), set())
    bound: dict[str, str] = {}
    for keys in units.joined:
        are_apart = len({earlier[key] for key in keys if key in earlier}) > 1
        if are_apart or units.is_too_large(keys) or units.fill_classes(keys):
            together = set(keys)
            shared = [sha256 for sha256, of in sets.items() if of[0] in together]
            logging.warning(
                "%s groups share %s images, but cannot be in one split: the copies of each image "
                "stay together, whatever their group.",
                *(f"{len(keys):,}", f"{len(shared):,}"),
            )
            bound |= dict(zip(shared, shared, strict=True))
        else:
            bound |= units.bind(keys, earlier)
    return bound


def bind(
    clusters: Sequence[DuplicateCluster],
    reports: Sequence[PlanReport],
    earlier: Mapping[str, str],
    copies: Mapping[str, str],
) -> tuple[dict[str, str], list[str]]:
    """Return the key of each image or group without a given split → the key that decides for it.

    Clusters that share a group become one. The classes that follow have almost no images but near
    duplicates: these are not kept together. `copies` is what `bind_copies` returns.
    """
    alone = {key for key, first in copies.items() if key == first}
    files = _find_files(clusters, reports)
    sets: list[Sequence[str]] = [*copies.items()]
    alike: dict[str, collections.Counter[str]] = {}
    for cluster in clusters:
        keys = []
        for file, sha256 in ((file, of) for of in cluster.digests for file in files[of]):
            if file.split is None:
                keys.append(key := _key_of(file, sha256, alone))
                alike.setdefault(key, collections.Counter())[file.label] += 1
        sets.append(keys)
    bound, divided = dict(copies), set[str]()
    units = _Units(reports, sets, alone)
    for keys in units.joined:
        counts = sum((alike[key] for key in keys if key in alike), collections.Counter[str]())
        if classes := units.fill_classes(keys, counts):
            divided |= set(classes)
        elif units.is_too_large(keys):
            logging.warning(
                "%s images look almost the same, too many for one split: they are left where they "
                "are.",
                f"{units.count(keys).total():,}",
            )
        else:
            bound |= units.bind(keys, earlier)
    return bound, sorted(divided)


def list_clusters(
    clusters: Sequence[DuplicateCluster], reports: Sequence[PlanReport], after: Assignment
) -> list[dict[str, Any]]:
    """Return the lines of the list of near duplicates; `reports` are those before the moves."""
    files = _find_files(clusters, reports)
    lines = []
    for number, cluster in enumerate(clusters, start=1):
        rows = [
            (
                file.path,
                after.label_of(file, sha256),
                after.rule.split_of(file, sha256),
                sha256,
                likeness,
            )
            for sha256, likeness in zip(cluster.digests, cluster.likeness, strict=True)
            for file in files[sha256]
        ]
        names = ("paths", "labels", "splits", "sha256", "likeness")
        lines.append({"cluster": number, **dict(zip(names, zip(*rows, strict=True), strict=True))})
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
    """Return the likeness of each pair of rows, -1 to 1; at most 1."""
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
