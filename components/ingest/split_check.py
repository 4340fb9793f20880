"""Whether the splits will have what training needs, asked before anything is ingested."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Iterator, Mapping

from components.contract.errors import DataError
from components.contract.splits import EVAL, TRAIN
from components.ingest.config import IngestConfig
from components.ingest.listing import ImageFile, Listing
from components.ingest.shard_plan import split_of
from components.storage.fetch import read_files

# Of a class of 9 images none falls into a train split of 0.8 once in two million.
_RARE = 8
# Of so many images none falls into an eval split of 0.1 once in a billion.
_FEW = 200
_MOST_READ = 2_000


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

    Reads the images of classes that have only a few, and all images where there are few: whether
    others get into each split is no question.

    Raises:
        DataError: as `require_splits`.
    """
    found: dict[str, collections.Counter[str]] = {}
    unknown: list[ImageFile] = []
    rare = _rare_labels(listing)
    for file in listing.files:
        if file.split is not None:
            found.setdefault(file.split, collections.Counter())[file.label] += 1
        elif len(listing.files) <= _FEW or file.label in rare:
            unknown.append(file)
        else:
            for split in listing.fractions:
                found.setdefault(split, collections.Counter())[file.label] += 1
    unknown.sort(key=lambda file: rare.get(file.label, _RARE))
    for file, split in _splits_of(listing, unknown[:_MOST_READ], config):
        found.setdefault(split, collections.Counter())[file.label] += 1
    require_splits(found, listing.root)


def _rare_labels(listing: Listing) -> dict[str, int]:
    """Return the labels of few images of which none is named for train, with their number."""
    counts = collections.Counter(file.label for file in listing.files if file.split is None)
    trained = {file.label for file in listing.files if file.split == TRAIN}
    return {name: n for name, n in counts.items() if n <= _RARE and name not in trained}


def _splits_of(
    listing: Listing, files: list[ImageFile], config: IngestConfig
) -> Iterator[tuple[ImageFile, str]]:
    """Yield the split of each file that can be read."""
    for file, content in read_files(listing.root, files, config):
        if isinstance(content, bytes):
            yield file, split_of(file, hashlib.sha256(content).hexdigest(), listing.fractions)
