"""Assign each image to a split: by its hash, corrected where a class is small."""

import bisect
import collections
import hashlib
import itertools
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from components.contract.errors import DataError
from components.contract.example import EVAL, TRAIN
from components.contract.printable import quote
from components.host.progress import report_progress
from components.ingest.config import IngestConfig
from components.ingest.datasets.reading import read_images
from components.ingest.source.listing import ImageFile, Listing, place_in_listing

# An eval split of 0.1 of this many images is usually within a tenth of its size by hash alone.
# Larger classes may deviate by more, so that no image moves when a class outgrows this number.
_SMALL_CLASS = 1_000
# Limits of what is read before ingest, smallest classes first.
_MOST_IMAGES, _MOST_BYTES = 20_000, 2 * 2**30
# A split of a class may deviate from its fraction by this, or by one image. The smaller the
# correction, the fewer images change their split as a class grows.
_TOLERANCE = 0.1
_REPORT_EVERY = 1_000
# With this many images, some fall into each split, unless they are all alike.
_FEW = 200

Unit = tuple[float, int]
"""Position of a content or group, [0, 1), and its number of images. Copies of an image do not
count, so that they do not move other images."""


@dataclass(frozen=True)
class SplitRule:
    """Decides the split of each image from the image alone, whatever the order."""

    fractions: Mapping[str, float]
    """Split → its fraction of the images divided by hash; they add up to 1."""
    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Small class → end of each split, 0 to 1, in the order of its fractions."""
    uncorrected: frozenset[str] = frozenset()
    """Keys (see `key_of`) with several labels, whose bounds and fractions may differ."""
    own_fractions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Fractions of labels that have others than `fractions`."""
    assigned: Mapping[str, str] = field(default_factory=dict)
    """Key → its split, if it follows a near duplicate or an earlier ingest."""
    bound: Mapping[str, str] = field(default_factory=dict)
    """Key of a near duplicate → the key that decides for its cluster."""

    def split_of(self, file: ImageFile, sha256: str) -> str:
        """Return the given split of a file, or that of the hash of its group or content.

        The same content or group always falls into the same split.
        """
        if file.split is not None:
            return file.split
        key = key_of(file, sha256)
        if key in self.assigned:
            return self.assigned[key]
        fractions, bounds = self.fractions, None
        if key not in self.uncorrected:
            fractions = self.own_fractions.get(file.label, fractions)
            bounds = self.bounds.get(file.label)
        ends = bounds or list(itertools.accumulate(fractions.values()))
        # Fractions may add up to slightly less than 1: the last split takes the rest.
        found = bisect.bisect_right(ends, _position(key), hi=len(fractions) - 1)
        return list(fractions)[found]

    def unit_of(self, file: ImageFile, sha256: str) -> str:
        """Return the key of all images that must stay together with this one."""
        key = key_of(file, sha256)
        return self.bound.get(key, key)


def key_of(file: ImageFile, sha256: str) -> str:
    """Return the digest that decides the split: of the file's group, or else of its content."""
    if file.group is None:
        return sha256
    return hashlib.sha256(file.group.encode("utf-8", "surrogateescape")).hexdigest()


def _position(key: str) -> float:
    return int(key[:13], 16) / 16**13


def stratify(
    listing: Listing, config: IngestConfig, known: Mapping[str, str] | None = None
) -> SplitRule:
    """Correct the split of small classes, which hashes alone would divide unevenly.

    Small classes are read, because their content is hashed: most images are then written to the
    right shard at once. Groups with several labels, which must stay together, are left to their
    hashes. Files in `known`, path → digest, are not read.
    """
    known = known or {}
    classes = _find_small_classes(listing, known)
    ungrouped = [file for files in classes.values() for file in files if file.group is None]
    unread = [file for file in ungrouped if file.path not in known]
    if unread and unread[0].shard:
        unread.sort(key=place_in_listing)  # One pass over each shard, not one per class.
    read = ((file, known[file.path]) for file in ungrouped if file.path in known)
    digests = itertools.chain(read, _read_digests(listing, unread, config))
    return find_rule(listing, classes, digests)


def find_rule(
    listing: Listing,
    classes: Collection[str],
    digests: Iterable[tuple[ImageFile, str]],
) -> SplitRule:
    """Find the bounds of classes; `digests` must cover all their files without a group."""
    labels: dict[str, set[str]] = {}
    groups = {label: collections.Counter[str]() for label in classes}
    for file in listing.files if listing.tally.has_groups else ():
        if file.group is not None:
            labels.setdefault(key := key_of(file, ""), set()).add(file.label)
            if file.split is None and file.label in groups:
                groups[file.label][key] += 1
    ambiguous = frozenset(key for key, of_group in labels.items() if len(of_group) > 1)
    # A million digests take 10 MB as positions.
    positions = {label: array("d") for label in classes}
    for file, sha256 in digests:
        if file.group is None and file.label in positions:
            positions[file.label].append(_position(sha256))
    bounds = {}
    for label, of_label in groups.items():
        units = [(_position(key), of_label[key]) for key in of_label.keys() - ambiguous]
        units += ((position, 1) for position in np.unique(positions[label]).tolist())
        bounds[label] = find_bounds(sorted(units), listing.fractions_of(label))
    return SplitRule(listing.fractions, bounds, ambiguous, listing.own_fractions)


def _find_small_classes(
    listing: Listing, known: Collection[str] = ()
) -> dict[str, list[ImageFile]]:
    """Return the files of classes to read before ingest, but for paths that are known."""
    unread: dict[str, list[int]] = {}
    for file in listing.files:
        if file.split is None:
            sizes = unread.setdefault(file.label, [])
            if file.path not in known:
                sizes.append(file.size)
    found: dict[str, list[ImageFile]] = {}
    images = size = 0
    for label, sizes in sorted(unread.items(), key=lambda item: (len(item[1]), item[0])):
        images, size = images + len(sizes), size + sum(sizes)
        if len(sizes) > _SMALL_CLASS or images > _MOST_IMAGES or size > _MOST_BYTES:
            break
        found[label] = []
    for file in listing.files if found else ():
        if file.split is None and file.label in found:
            found[file.label].append(file)
    return found


def _read_digests(
    listing: Listing, files: Sequence[ImageFile], config: IngestConfig
) -> Iterator[tuple[ImageFile, str]]:
    """Yield each readable file with the SHA-256 of its content."""
    # One call for all classes keeps many requests in flight, however small the classes are.
    for number, (file, content) in enumerate(read_images(listing.root, files, config), start=1):
        if number % _REPORT_EVERY == 0:
            report_progress(done=number, total=len(files), unit="images", note="to divide classes")
        if isinstance(content, bytes):
            yield file, hashlib.sha256(content).hexdigest()


def find_bounds(units: Sequence[Unit], fractions: Mapping[str, float]) -> tuple[float, ...]:
    """Return the end of each split, as close to its nominal end as its number of images allows.

    Each split gets its fraction of the images, give or take a tenth or one image. Train gets at
    least one image, then eval, then the others.

    Args:
        units: sorted units of one class, with different positions.
        fractions: split → its fraction; they add up to 1.
    """
    places = [place for place, _ in units]
    images = sum(count for _, count in units)
    tolerance = _TOLERANCE * max(1.0, images / _SMALL_CLASS)
    least = _min_units(fractions, units=len(units), images=images)
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


def _min_units(fractions: Mapping[str, float], *, units: int, images: int) -> dict[str, int]:
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


def check_splits(listing: Listing, config: IngestConfig) -> Mapping[str, Mapping[str, int]]:
    """Raise what `require_splits` would raise after ingest; return split → label → images.

    A few images are read; of many, all are assumed to be in every split.
    """
    counts = listing.labels_per_split()
    hashed = counts.pop(None, collections.Counter())
    found = {split: of for split, of in counts.items() if split is not None}
    if len(listing.files) > _FEW:
        for label, count in hashed.items():
            for split in listing.fractions_of(label):
                found.setdefault(split, collections.Counter())[label] += count
    else:
        loose = [file for file in listing.files if file.split is None]
        digests = list(_read_digests(listing, loose, config))
        rule = find_rule(listing, _find_small_classes(listing), digests)
        for file, sha256 in digests:
            split = rule.split_of(file, sha256)
            found.setdefault(split, collections.Counter())[file.label] += 1
    require_splits(found, listing.root)
    return found


def require_splits(found: Mapping[str, Mapping[str, int]], root: str) -> None:
    """Raise `DataError` unless train has images of every class, and eval has any.

    `found` is split → label → images, and `root` the folder of the images.
    """
    for split in (TRAIN, EVAL):
        if not found.get(split):
            count = sum(sum(labels.values()) for labels in found.values())
            raise DataError(
                f"No image of {root} falls into the {split} split, because there are only "
                f"{count:,}: add images, or sort them into train and eval folders."
            )
    untrained = sorted(set().union(*found.values()) - found[TRAIN].keys())
    if untrained:
        raise DataError(
            f"Class {quote(untrained[0])} of {root} has no usable image to train on: add images, "
            f"or remove the class."
        )
