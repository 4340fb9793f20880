"""Choose the splits of a folder of images, and the split of each image.

The listing alone decides the fractions, so inspection and every run of a folder agree. A hash
divides the images, corrected where a class is small.
"""

import bisect
import collections
import hashlib
import itertools
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from components.contract.errors import DataError
from components.contract.example import EVAL, TEST, TRAIN
from components.contract.printable import quote
from components.images.check_result import Category
from components.ingest.source.listing import ImageFile, Listing

MIN_SPLIT_IMAGES = 100
"""Smallest split made by default. With 100 images, the 95% confidence interval of an accuracy of
0.9 is already 0.12 wide; TensorFlow Data Validation compares no statistics of smaller splits."""

_HELD_OUT = 0.1
_ONLY_HELD_OUT = 0.2


def choose_splits(
    counts: Mapping[str | None, int], wanted: Mapping[str, float] | None = None
) -> tuple[dict[str | None, str | None], dict[str, float]]:
    """Choose how to divide images into train, eval and test.

    If no eval split is given, it is taken from train by hash, and so is test. Small folders get
    only splits that are large enough for a useful confidence interval.

    `counts` is split given by folder or manifest, or None, → files; `wanted` is used as it is.

    Returns:
        Given split, or None, → the split of its files, or None: decided by hash. Split → its
        fraction of those, sorted by name, because JSON keeps the order.
    """
    splits: dict[str | None, str | None] = {name: name for name in counts}
    if not counts.keys() & {None, EVAL}:
        splits[TRAIN] = None
    by_hash = sum(count for name, count in counts.items() if splits[name] is None)
    fractions = wanted or _default_fractions(by_hash, given=splits.values())
    return splits, dict(sorted(fractions.items()))


def _default_fractions(count: int, given: Collection[str | None]) -> dict[str, float]:
    """Return the default fractions of train and of the splits that are not given."""
    if count * _HELD_OUT >= MIN_SPLIT_IMAGES:
        held_out = dict.fromkeys((name for name in (EVAL, TEST) if name not in given), _HELD_OUT)
    else:
        held_out = {} if EVAL in given else {EVAL: _ONLY_HELD_OUT}
    return {TRAIN: 1 - sum(held_out.values()), **held_out}


# An eval split of 0.1 of this many images is usually within a tenth of its size by hash alone.
# Larger classes may deviate by more, so that no image moves when a class outgrows this number.
_SMALL_CLASS = 1_000
# A split of a class may deviate from its fraction by this, or by one image. The smaller the
# correction, the fewer images change their split as a class grows.
_TOLERANCE = 0.1

Unit = tuple[float, int]
"""Position of a content or group, [0, 1), and its number of images. Copies of an image do not
count, so that they do not move other images."""


@dataclass(frozen=True)
class SplitRule:
    """Decides the split of each image from the image alone, whatever the order."""

    fractions: Mapping[str, float]
    """Split → its fraction of the images divided by hash; they add up to 1."""
    bounds: Mapping[str | None, Sequence[float]] = field(default_factory=dict)
    """Small class, or None for units with several labels → end of each split, 0 to 1, in the order
    of its fractions."""
    ambiguous: frozenset[str] = frozenset()
    """Keys of units with several labels."""
    assigned: Mapping[str, str] = field(default_factory=dict)
    """Key of a unit → its split, if it follows an earlier ingest."""
    bound: Mapping[str, str] = field(default_factory=dict)
    """Key (see `key_of`) of a near duplicate → the key that decides for its cluster. The digest of
    an image, if there is one, precedes the key of its group."""

    def split_of(self, file: ImageFile, sha256: str) -> str:
        """Return the given split of a file, or that of the hash of its group or content.

        The same content, group or cluster always falls into the same split.
        """
        if file.split is not None:
            return file.split
        key = self.unit_of(file, sha256)
        if key in self.assigned:
            return self.assigned[key]
        bounds = self.bounds.get(None if key in self.ambiguous else file.label)
        ends = bounds or list(itertools.accumulate(self.fractions.values()))
        # Fractions may add up to slightly less than 1: the last split takes the rest.
        place = bisect.bisect_right(ends, _position(key), hi=len(self.fractions) - 1)
        return list(self.fractions)[place]

    def unit_of(self, file: ImageFile, sha256: str) -> str:
        """Return the key of all images that must stay together with this one."""
        if sha256 in self.bound:
            return self.bound[sha256]
        key = key_of(file, sha256)
        return self.bound.get(key, key)


def key_of(file: ImageFile, sha256: str) -> str:
    """Return the digest that decides the split: of the file's group, or else of its content."""
    if file.group is None:
        return sha256
    return hashlib.sha256(file.group.encode("utf-8", "surrogateescape")).hexdigest()


def _position(key: str) -> float:
    return int(key[:13], 16) / 16**13


def find_rule(
    listing: Listing,
    classes: Collection[str],
    digests: Iterable[tuple[ImageFile, str]],
    bound: Mapping[str, str] | None = None,
    mixed: Set[str] = frozenset(),
) -> SplitRule:
    """Find the bounds of classes, and of units with several labels; `digests` cover all images.

    `bound` is that of the rule: each cluster of near duplicates is divided as one unit. `mixed` are
    the digests of images with several labels.
    """
    bound = bound or {}
    labels: dict[str, set[str]] = {}
    units = {label: collections.Counter[str]() for label in classes}

    def add(file: ImageFile, key: str) -> None:
        labels.setdefault(key, set()).add(file.label)
        if file.split is None and file.label in units:
            units[file.label][key] += 1

    # A million digests take 10 MB as positions.
    positions = {label: array("d") for label in classes}
    seen = set[tuple[str, str | None, str]]()
    for file, sha256 in digests:
        if sha256 in bound or (sha256 in mixed and file.group is None):
            # Copies do not count.
            if (image := (file.label, file.split, sha256)) not in seen:
                seen.add(image)
                add(file, bound.get(sha256, sha256))
        elif file.group is not None:
            key = key_of(file, sha256)
            add(file, bound.get(key, key))
        elif file.label in positions:
            positions[file.label].append(_position(sha256))
    ambiguous = frozenset(key for key, of_key in labels.items() if len(of_key) > 1)
    of_ambiguous = collections.Counter[str]()
    bounds: dict[str | None, Sequence[float]] = {}
    for label, of_label in units.items():
        of_ambiguous.update({key: of_label[key] for key in of_label.keys() & ambiguous})
        counts = [(_position(key), of_label[key]) for key in of_label.keys() - ambiguous]
        counts += ((position, 1) for position in sorted(set(positions[label])))
        bounds[label] = find_bounds(sorted(counts), listing.fractions)
    if of_ambiguous:
        counts = [(_position(key), count) for key, count in of_ambiguous.items()]
        bounds[None] = find_bounds(sorted(counts), listing.fractions)
    return SplitRule(listing.fractions, bounds, ambiguous, bound=bound)


def find_bounds(units: Sequence[Unit], fractions: Mapping[str, float]) -> tuple[float, ...]:
    """Return the end of each split, as close to its nominal end as its number of images allows.

    Each split gets its fraction of the images, give or take a tenth or one image. Train gets at
    least one image, then eval, then the others. `units` are those of one class, sorted, with
    different positions.
    """
    places = [place for place, _ in units]
    images = sum(count for _, count in units)
    tolerance = _TOLERANCE * max(1.0, images / _SMALL_CLASS)
    least = min_units(fractions, units=len(units), images=images)
    ends: list[float] = []
    start = 0
    nominals = itertools.accumulate(fractions.values())
    for split, nominal in zip(fractions, nominals, strict=True):
        least_later = sum(list(least.values())[len(ends) + 1 :])
        natural = bisect.bisect_left(places, nominal)
        start += _take_units(
            [count for _, count in units[start : len(units) - least_later]],
            natural - start,
            least=least[split],
            expected=(expected := fractions[split] * images),
            slack=max(1.0, tolerance * expected),
        )
        ends.append(nominal if start == natural else [*places, 1.0][start])
    ends[-1] = 1.0
    return tuple(ends)


def expect_labels(listing: Listing) -> dict[str, dict[str, float]]:
    """Return split → label → about how many images it will have once hashes have divided them."""
    counts, fractions = listing.labels_per_split(), listing.fractions
    expected: dict[str, dict[str, float]] = {s: {**labels} for s, labels in counts.items() if s}
    for label, images in counts.get(None, collections.Counter()).items():
        least = min_units(fractions, units=images, images=images)
        rest = {name: max(fractions[name] * images - least[name], 0) for name in fractions}
        spare = (images - sum(least.values())) / (sum(rest.values()) or 1)
        for split in fractions:
            if count := least[split] + rest[split] * spare:
                of_split = expected.setdefault(split, {})
                of_split[label] = of_split.get(label, 0) + count
    return expected


def expect_images(listing: Listing, split: str) -> int:
    """Return about how many images `split` will have once hashes have divided the others."""
    return round(sum(expect_labels(listing).get(split, {}).values()))


def min_units(fractions: Mapping[str, float], *, units: int, images: int) -> dict[str, int]:
    """Return the smallest number of units of each split, in the order of `fractions`."""
    order = sorted(fractions, key=lambda split: (split != TRAIN, split != EVAL))
    wanted = [s for s in order if s in (TRAIN, EVAL) or fractions[s] * images >= 1][:units]
    return {split: int(split in wanted) for split in fractions}


def _take_units(
    counts: Sequence[int], natural: int, *, least: int, expected: float, slack: float
) -> int:
    """Return how many of the remaining units a split takes, as close to `natural` as possible."""
    stop = min(max(natural, least), len(counts))
    taken = sum(counts[:stop])
    while stop < len(counts) and taken < expected - slack:
        taken += counts[stop]
        stop += 1
    while stop > least and taken > expected + slack:
        stop -= 1
        taken -= counts[stop]
    return stop


def require_splits(counts: Mapping[str, Mapping[str, float]], root: str) -> None:
    """Raise `DataError` unless train has images of every class, and eval has any.

    `counts` is split → label → images, and `root` the folder of the images.
    """
    for split in (TRAIN, EVAL):
        if not counts.get(split):
            count = round(sum(sum(labels.values()) for labels in counts.values()))
            first = "train has the first of each class, and " if split == EVAL else ""
            raise DataError(
                f"No image of {root} falls into the {split} split, because {first}there are only "
                f"{count:,}: add images, or sort them into train and eval folders."
            )
    untrained = sorted(set().union(*counts.values()) - counts[TRAIN].keys())
    if untrained:
        raise DataError(
            f"Class {quote(untrained[0])} of {root} has no usable image to train on: add images, "
            f"or remove the class."
        )


def check_classes(rejects: Mapping[str, str], listing: Listing) -> None:
    """Raise `DataError` if a class, or its part in a given split, has only rejected files.

    A person may remove a class. `rejects` is path → category.
    """
    lost: dict[tuple[str | None, str], list[str]] = {}
    for file in listing.files if rejects else ():
        if file.path in rejects:
            for split in {file.split, None}:
                lost.setdefault((split, file.label), []).append(file.path)
    counts = listing.labels_per_split()
    counts[None] = sum(counts.values(), collections.Counter())
    for (split, label), paths in lost.items():
        unusable = [path for path in paths if rejects[path] != Category.REMOVED.value]
        if unusable and len(paths) == counts[split][label]:
            where = f" in split {quote(split)}" if split else ""
            more = f", as are {len(paths) - 1:,} more" if paths[1:] else ""
            raise DataError(
                f"Class {quote(label)} of {listing.root} has no usable image{where}: "
                f"{unusable[0]} is rejected ({rejects[unusable[0]]}){more}. Add images, or remove "
                f"the class."
            )
