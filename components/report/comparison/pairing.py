"""Which images two evaluations share: by content, so that a file may have been renamed or moved."""

from __future__ import annotations

import collections
from dataclasses import dataclass

import numpy as np

from components.evaluation.metrics.predictions import Evaluated, Ints, Predictions
from components.report.comparison.facts import Overlap


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What the model of a run answered to its images, and where these are."""

    evaluated: Evaluated
    keys: tuple[str, ...]
    """Digest of the content of each image."""
    examples: str
    """URI of ImageExampleGen's examples."""
    split: str

    @property
    def answers(self) -> Predictions:
        """The predictions of the model."""
        return self.evaluated.candidate

    @property
    def labels(self) -> tuple[str, ...]:
        """The right answer to each image."""
        return self.evaluated.slices["class"]


@dataclass(frozen=True, eq=False)
class Pairs:
    """The images that two evaluations share."""

    first: Ints
    """[pairs], rows of the first evaluation."""
    second: Ints
    """[pairs], rows of the second one."""
    overlap: Overlap


def pair(first: Evaluation, second: Evaluation) -> Pairs:
    """Pair images with the same content and label; copies of an image pair one by one.

    An image that has another label in each run says nothing of the models, and is only counted.
    """
    rows, others = _number(first), _number(second)
    both = sorted(rows.keys() & others.keys())
    # Keys that are left on both sides differ in the label.
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
    """Return the row of each image, by its content, its label and the number of the copy."""
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    rows = {}
    for row, image in enumerate(zip(evaluation.keys, evaluation.labels, strict=True)):
        rows[*image, seen[image]] = row
        seen[image] += 1
    return rows
