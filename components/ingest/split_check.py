"""Whether the splits will have what training needs, asked before anything is ingested."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping

from components.contract.errors import DataError
from components.contract.splits import EVAL, TRAIN
from components.ingest.config import IngestConfig
from components.ingest.listing import ImageFile, Listing
from components.ingest.stratification import find_rule, find_small_classes, read_digests

# Of so many images some fall into each split, unless they are all alike.
_FEW = 200


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
