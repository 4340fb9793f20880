"""Choose the splits of a folder of images, from its listing alone.

Inspection and every run of the same folder therefore agree.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from components.contract.example import EVAL, TEST, TRAIN

MIN_SPLIT_IMAGES = 100
"""Smallest split made by default. With 100 images, the 95% confidence interval of an accuracy of
0.9 is already 0.12 wide; TensorFlow Data Validation compares no statistics of smaller splits."""

_HELD_OUT = 0.1
_ONLY_HELD_OUT = 0.2
_NOTE = "{}: a score on eval is slightly optimistic, as eval also selects the model."


class SplitChoice(NamedTuple):
    """How the files of a listing are divided."""

    splits: Mapping[str | None, str | None]
    """Given split, or None, → the split of its files; None: decided by hash."""
    fractions: Mapping[str, float]
    """Split → its fraction of the files divided by hash, sorted by name."""
    note: str
    """Warning for the user; may be empty."""


def choose_splits(
    counts: Mapping[str | None, int], wanted: Mapping[str, float] | None = None
) -> SplitChoice:
    """Choose how to divide images into train, eval and test.

    If no eval split is given, it is taken from train by hash, and so is test. Small folders get
    only splits that are large enough for a useful confidence interval.

    Args:
        counts: split given by folder or manifest, or None, → number of files.
        wanted: `ingest.splits`, used as it is.
    """
    splits: dict[str | None, str | None] = {name: name for name in counts}
    if not counts.keys() & {None, EVAL}:
        splits[TRAIN] = None
    by_hash = sum(count for name, count in counts.items() if splits[name] is None)
    # Sorted, because JSON keeps the order.
    fractions = dict(sorted((wanted or _default_fractions(by_hash, given=splits.values())).items()))
    if TEST in {*splits.values(), *(fractions if by_hash else ())}:
        return SplitChoice(splits, fractions, "")
    if by_hash and not wanted:
        reason = f"{by_hash:,} images are too few for a test split of {MIN_SPLIT_IMAGES}"
    else:
        reason = "There is no test split"
    return SplitChoice(splits, fractions, _NOTE.format(reason))


def _default_fractions(count: int, given: Collection[str | None]) -> dict[str, float]:
    """Return the default fractions of train and of the splits that are not given."""
    if count * _HELD_OUT >= MIN_SPLIT_IMAGES:
        held_out = dict.fromkeys((name for name in (EVAL, TEST) if name not in given), _HELD_OUT)
    else:
        held_out = {} if EVAL in given else {EVAL: _ONLY_HELD_OUT}
    return {TRAIN: 1 - sum(held_out.values()), **held_out}


def fill_splits(
    counts: Mapping[str, Mapping[str | None, int]], fractions: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Choose fractions for labels that lack an eval or test split which rows of others name.

    Args:
        counts: label → split that its rows name, or None → number of files.
        fractions: fractions of all other labels.

    Returns:
        Label → split → its fraction of the label's files without a split.
    """
    named = {split for of_label in counts.values() for split in of_label}
    filled = {}
    for label, of_label in counts.items():
        missing = {EVAL, TEST} & named - of_label.keys() - fractions.keys()
        if None in of_label and missing:
            rest = 1 - _HELD_OUT * len(missing)
            own = {split: fraction * rest for split, fraction in fractions.items()}
            filled[label] = dict(sorted((own | dict.fromkeys(missing, _HELD_OUT)).items()))
    return filled
