"""Pairs the images that two runs evaluated, by content: files may have been renamed or moved."""

from __future__ import annotations

import collections
from dataclasses import dataclass

import numpy as np

from components.evaluation.metrics.predictions import Evaluated, Ints, Predictions


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The predictions of a run for its images."""

    evaluated: Evaluated
    keys: tuple[str, ...]
    """Digest of the content of each image."""
    examples: str
    """URI of ImageExampleGen's examples."""
    split: str

    @property
    def predictions(self) -> Predictions:
        """The predictions of the model."""
        return self.evaluated.candidate

    @property
    def labels(self) -> tuple[str, ...]:
        """The true label of each image."""
        return self.evaluated.slices["class"]


@dataclass(frozen=True)
class Overlap:
    """Numbers of the images that the runs share or not."""

    shared: int
    """In both runs with the same label."""
    relabelled: int
    """In both runs with different labels."""
    only_first: int
    """In the first run only."""
    only_second: int

    @property
    def is_whole(self) -> bool:
        """Whether both runs evaluated the same images with the same labels."""
        return not (self.relabelled or self.only_first or self.only_second)


@dataclass(frozen=True, eq=False)
class Pairs:
    """The images that both runs evaluated."""

    first: Ints
    """[pairs], rows of the first evaluation."""
    second: Ints
    """[pairs], rows of the second one."""
    overlap: Overlap


def pair(first: Evaluation, second: Evaluation) -> Pairs:
    """Pair images with the same content and label; copies of an image pair one by one.

    Images with different labels are only counted.
    """
    rows, others = _number(first), _number(second)
    both = sorted(rows.keys() & others.keys())
    # Keys left on both sides differ in the label.
    left = collections.Counter(key for key, *_ in rows.keys() - others.keys())
    right = collections.Counter(key for key, *_ in others.keys() - rows.keys())
    relabelled = (left & right).total()
    return Pairs(
        first=np.array([rows[image] for image in both], np.int64),
        second=np.array([others[image] for image in both], np.int64),
        overlap=Overlap(
            shared=len(both),
            relabelled=relabelled,
            only_first=left.total() - relabelled,
            only_second=right.total() - relabelled,
        ),
    )


def _number(evaluation: Evaluation) -> dict[tuple[str, str, int], int]:
    """Return the row of each image by content, label, and number of the copy."""
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    rows = {}
    for row, image in enumerate(zip(evaluation.keys, evaluation.labels, strict=True)):
        rows[*image, seen[image]] = row
        seen[image] += 1
    return rows
