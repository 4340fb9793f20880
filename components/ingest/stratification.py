"""Into which split each image falls: by its hash, corrected where a class is small."""

from __future__ import annotations

import bisect
import collections
import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from components.contract.errors import DataError
from components.contract.example import EVAL, TRAIN
from components.contract.progress import report_progress
from components.ingest.config import IngestConfig
from components.ingest.listing import ImageFile, Listing
from components.storage.fetch import read_files

# Hashes give an eval split of 0.1 of so many images within a tenth of its size, mostly.
_SMALL_CLASS = 1_000
# Read before the ingest at most, the smallest classes first.
_MOST_IMAGES, _MOST_BYTES = 20_000, 2 * 2**30
# A split of a class may be larger or smaller than its fraction by so much, or by one image: the
# less is corrected, the fewer images change their split as a class grows.
_TOLERANCE = 0.1
_REPORT_EVERY = 1_000
# With this many images, some fall into each split, unless they are all alike.
_FEW = 200

Unit = tuple[float, int]
"""Position of a content or a group, [0, 1), and how many images it stands for. Copies of an image
do not count, so that they move no other."""


@dataclass(frozen=True)
class SplitRule:
    """The split of each image; depends on the images alone, not on their order."""

    fractions: Mapping[str, float]
    """Split → its fraction of the images whose split follows from a hash; they add up to 1."""
    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Small class → where each split ends, in the order of `fractions`, 0 to 1."""
    uncorrected: frozenset[str] = frozenset()
    """Keys of contents and groups with several labels, whose bounds may differ: see `key_of`."""

    def split_of(self, file: ImageFile, sha256: str) -> str:
        """Choose the split of a file: the one given, or by the hash of its group or its content.

        The same content or group always falls into the same split.

        Args:
            file: as it was listed.
            sha256: of its content, hexadecimal.
        """
        if file.split is not None:
            return file.split
        key = key_of(file, sha256)
        bounds = None if key in self.uncorrected else self.bounds.get(file.label)
        # Fractions may add up to a little less than one: the last split takes what is left.
        inner = len(self._splits) - 1
        found = bisect.bisect_right(bounds or self._ends, _position(key), hi=inner)
        return self._splits[found]

    @functools.cached_property
    def _splits(self) -> tuple[str, ...]:
        return tuple(self.fractions)

    @functools.cached_property
    def _ends(self) -> list[float]:
        return _ends(self.fractions)


def key_of(file: ImageFile, sha256: str) -> str:
    """Return the digest that decides on the split: of the file's group, or else of its content."""
    if file.group is None:
        return sha256
    return hashlib.sha256(file.group.encode("utf-8", "surrogateescape")).hexdigest()


def _position(key: str) -> float:
    return int(key[:13], 16) / 16**13


def stratify(listing: Listing, config: IngestConfig) -> SplitRule:
    """Correct the hashes of classes so small that chance would divide them unevenly.

    Their images are read, as the content is what is hashed. Large classes are left to chance, and
    so are groups with several labels: a group stays together.
    """
    classes = find_small_classes(listing)
    alone = [file for files in classes.values() for file in files if file.group is None]
    return find_rule(listing, classes, read_digests(listing, alone, config))


def find_rule(
    listing: Listing,
    classes: Mapping[str, Sequence[ImageFile]],
    digests: Iterable[tuple[ImageFile, str]],
) -> SplitRule:
    """Find the bounds of small classes from what is in their files.

    Args:
        listing: of all files.
        classes: the small ones of it.
        digests: files, those of small classes that have no group among them, and their SHA-256.
    """
    mixed = _groups_of_several_labels(listing)
    counts = {label: _count_groups(files) for label, files in classes.items()}
    for file, sha256 in digests:
        if file.group is None and file.label in counts:
            counts[file.label][sha256] = 1
    bounds = {}
    for label, of_label in counts.items():
        units = sorted((_position(key), of_label[key]) for key in of_label.keys() - mixed)
        bounds[label] = find_bounds(units, listing.fractions)
    return SplitRule(listing.fractions, bounds, mixed)


def _groups_of_several_labels(listing: Listing) -> frozenset[str]:
    labels: dict[str, set[str]] = {}
    for file in listing.files:
        if file.group is not None:
            labels.setdefault(key_of(file, ""), set()).add(file.label)
    return frozenset(key for key, of_group in labels.items() if len(of_group) > 1)


def find_small_classes(listing: Listing) -> dict[str, list[ImageFile]]:
    """Return the files without a split of the classes that are corrected: label → files."""
    classes: dict[str, list[ImageFile]] = {}
    for file in listing.files:
        if file.split is None:
            classes.setdefault(file.label, []).append(file)
    found: dict[str, list[ImageFile]] = {}
    images = size = 0
    for label, files in sorted(classes.items(), key=lambda item: (len(item[1]), item[0])):
        images, size = images + len(files), size + sum(file.size for file in files)
        if len(files) > _SMALL_CLASS or images > _MOST_IMAGES or size > _MOST_BYTES:
            break
        found[label] = files
    return found


def _count_groups(files: Sequence[ImageFile]) -> collections.Counter[str]:
    return collections.Counter(key_of(file, "") for file in files if file.group is not None)


def read_digests(
    listing: Listing, files: Sequence[ImageFile], config: IngestConfig
) -> Iterator[tuple[ImageFile, str]]:
    """Yield each file that can be read, and the SHA-256 of its content."""
    # All at once, so that a remote store is asked for many at a time however small the classes.
    for number, (file, content) in enumerate(read_files(listing.root, files, config), start=1):
        if number % _REPORT_EVERY == 0:
            report_progress(done=number, total=len(files), unit="images", note="to divide classes")
        if isinstance(content, bytes):
            yield file, hashlib.sha256(content).hexdigest()


def find_bounds(units: Sequence[Unit], fractions: Mapping[str, float]) -> tuple[float, ...]:
    """Return where each split ends, as near to its own place as its number of images allows.

    Each split gets its fraction of the images, give or take a tenth or one image. Train gets one
    image at least, then eval, then the others.

    Args:
        units: of one class, sorted, with different positions.
        fractions: split → its fraction; they add up to 1.
    """
    places = [place for place, _ in units]
    images = sum(count for _, count in units)
    least = _least(fractions, units=len(units), images=images)
    ends: list[float] = []
    start = 0
    for split, nominal in zip(fractions, _ends(fractions), strict=True):
        least_later = sum(list(least.values())[len(ends) + 1 :])
        natural = bisect.bisect_left(places, nominal)
        stop = _stop(
            [count for _, count in units[start : len(units) - least_later]],
            natural - start,
            least=least[split],
            expected=fractions[split] * images,
        )
        start += stop
        ends.append(nominal if start == natural else [*places, 1.0][start])
    ends[-1] = 1.0
    return tuple(ends)


def _ends(fractions: Mapping[str, float]) -> list[float]:
    return list(itertools.accumulate(fractions.values()))


def _least(fractions: Mapping[str, float], *, units: int, images: int) -> dict[str, int]:
    """Return how many units each split has to have, in the order of `fractions`."""
    order = sorted(fractions, key=lambda split: (split != TRAIN, split != EVAL))
    wanted = [s for s in order if s in (TRAIN, EVAL) or fractions[s] * images >= 1][:units]
    return {split: int(split in wanted) for split in fractions}


def _stop(counts: Sequence[int], natural: int, *, least: int, expected: float) -> int:
    """Return how many of the units that are left a split takes: as near to `natural` as it can."""
    slack = max(1.0, _TOLERANCE * expected)
    stop = min(max(natural, least), len(counts))
    taken = sum(counts[:stop])
    while stop < len(counts) and taken < expected - slack:
        taken += counts[stop]
        stop += 1
    while stop > least and taken > expected + slack:
        stop -= 1
        taken -= counts[stop]
    return stop


def require_splits(found: Mapping[str, Mapping[str, int]], root: str) -> None:
    """Raise `DataError` unless there are images to train on of every class, and some to evaluate.

    Args:
        found: split → label → images.
        root: folder that they come from.
    """
    for split in (TRAIN, EVAL):
        if not found.get(split):
            count = sum(sum(labels.values()) for labels in found.values())
            raise DataError(
                f"No image of {root} falls into the {split} split, as there are only {count:,}: "
                f"add images, or sort them into train and eval folders."
            )
    untrained = sorted(set().union(*found.values()) - found[TRAIN].keys())
    if untrained:
        raise DataError(
            f"Class {untrained[0]!r} of {root} has no usable image to train on: add images, or "
            f"remove the class."
        )


def check_splits(listing: Listing, config: IngestConfig) -> None:
    """Raise `DataError` for what `require_splits` would say of the ingested images.

    Where there are only a few images, they are read. Otherwise each class has one in every split
    of its hashes.

    Raises:
        DataError: as `require_splits`.
    """
    found: dict[str, collections.Counter[str]] = {}
    for file, split in _splits_of(listing, config):
        found.setdefault(split, collections.Counter())[file.label] += 1
    require_splits(found, listing.root)


def _splits_of(listing: Listing, config: IngestConfig) -> Iterator[tuple[ImageFile, str]]:
    """Yield each file that can be read with its split, or with all that it could fall into."""
    loose = [file for file in listing.files if file.split is None]
    yield from ((file, file.split) for file in listing.files if file.split is not None)
    if len(listing.files) > _FEW:
        yield from ((file, split) for file in loose for split in listing.fractions)
        return
    digests = list(read_digests(listing, loose, config))
    rule = find_rule(listing, find_small_classes(listing), digests)
    yield from ((file, rule.split_of(file, sha256)) for file, sha256 in digests)
