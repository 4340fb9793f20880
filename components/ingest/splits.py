"""Into which splits a folder of images is divided.

That follows from the listing alone, so that `inspect`, a run and the same run again agree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from components.contract.example import EVAL, TEST, TRAIN

FEWEST = 100
"""Images that a split has to hold to be made by default. With 100 the 95 % interval of an accuracy
of 0.9 is already 0.12 wide; of smaller splits TensorFlow Data Validation compares no statistics."""

_HELD_OUT = 0.1
_TWO_SPLITS = {TRAIN: 0.8, EVAL: 0.2}
_NOTE = (
    "The eval split both chooses the model and judges it, which flatters the model a little: {}."
)


class SplitChoice(NamedTuple):
    """How the files of a listing are divided."""

    splits: Mapping[str | None, str | None]
    """Split that is named, or None, → the split that its files get; None: by hash."""
    fractions: Mapping[str, float]
    """Split → its fraction of the files whose split follows from a hash, sorted by name."""
    note: str
    """What a person should know about it; empty if nothing."""


def choose_splits(
    counts: Mapping[str | None, int], wanted: Mapping[str, float] | None = None
) -> SplitChoice:
    """Choose the splits of images that are to be divided into train, eval and test.

    Where eval is not named, it is taken from train by hash, and so is test. Small folders get only
    as many splits as can carry an interval.

    Args:
        counts: split that folder or manifest names, None where they name none → files.
        wanted: `ingest.splits`, if it was given; taken as it is.
    """
    splits: dict[str | None, str | None] = {name: name for name in counts}
    test_chooses = False
    if not counts.keys() & {None, EVAL}:
        enough = wanted or counts.get(TRAIN, 0) * _HELD_OUT >= FEWEST
        test_chooses = TEST in counts and not enough
        splits |= {TEST: EVAL} if test_chooses else {TRAIN: None}
    by_hash = sum(count for name, count in counts.items() if splits[name] is None)
    # In the order of the names, which JSON keeps, whatever order they were given in.
    fractions = dict(sorted((wanted or _divide(by_hash, named=splits.values())).items()))
    judges = {*splits.values(), *(fractions if by_hash else ())}
    if TEST in judges:
        return SplitChoice(splits, fractions, "")
    if test_chooses:
        reason = f"train has too few images to take an eval split of {FEWEST} from"
    elif by_hash and not wanted:
        reason = f"{by_hash:,} images are too few for a test split of {FEWEST}"
    else:
        reason = "there is no test split"
    return SplitChoice(splits, fractions, _NOTE.format(reason))


def _divide(count: int, named: Collection[str | None]) -> dict[str, float]:
    """Return the default fractions of `count` images that no split is named for."""
    if count * _HELD_OUT < FEWEST:
        return _TWO_SPLITS
    held_out = dict.fromkeys((split for split in (EVAL, TEST) if split not in named), _HELD_OUT)
    return {TRAIN: 1 - sum(held_out.values()), **held_out}
