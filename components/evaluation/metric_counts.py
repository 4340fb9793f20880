"""Counts of a set of examples that add up, on one machine or on many; metrics follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.evaluation.predictions import Floats, Ints

Flags = NDArray[np.bool_]
Scores = NDArray[np.floating[Any]]

EDGES = np.linspace(0, 1, 15 + 1)
"""Of bins of confidence, as in Guo et al. 2017, "On Calibration of Modern Neural Networks"."""

_BINS = len(EDGES) - 1

TOP = {"top_3_accuracy": 3, "top_5_accuracy": 5}
"""Metric → among how many of the most probable classes the right one must be."""

# Keras's, so that the loss is that of training: float32 has probabilities of exactly 0.
_LEAST_PROBABILITY = 1e-7

MOST_LOSS = -math.log(_LEAST_PROBABILITY)
"""Nats, of an example whose class the model gives no chance."""

# The rank of what is not ranked.
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Answers:
    """What counts of a model's answers, one entry per example."""

    classes: Ints
    """[seen], ascending: the columns that are right or most probable anywhere, and -1."""
    truth: Ints
    """[examples], index into `classes`."""
    predicted: Ints
    """[examples], index into `classes`."""
    rank: Ints
    """[examples], how many classes the model puts before the right one, if it puts it anywhere."""
    bins: Ints
    """[examples], of the confidence, which lies in (lower edge, upper edge]."""
    confidence: Floats
    """[examples], probability of the most probable class, 0 to 1."""
    loss: Floats
    """[examples], nats."""

    @property
    def right(self) -> Flags:
        """Whether the most probable class is the right one, [examples]."""
        right: Flags = self.truth == self.predicted
        return right

    @classmethod
    def of(cls, ids: Ints, probabilities: Scores) -> Answers:
        """Compare probabilities [examples, classes] with the columns of the right answers.

        Args:
            ids: [examples], -1 for a label that the model does not know: it is wrong about it, and
                its loss is the highest there is.
            probabilities: brought to a sum of 1 in each row.
        """
        examples = np.arange(len(ids))
        predicted = probabilities.argmax(axis=1)
        classes, places = np.unique(np.concatenate([ids, predicted]), return_inverse=True)
        sums = probabilities.sum(axis=1, dtype=np.float64)
        confidence = probabilities[examples, predicted] / sums
        of_truth = np.where(ids >= 0, probabilities[examples, ids] / sums, 0)
        return cls(
            classes=classes,
            truth=places[: len(ids)],
            predicted=places[len(ids) :],
            rank=_rank(ids, probabilities),
            bins=(EDGES.searchsorted(confidence) - 1).clip(0, _BINS - 1),
            confidence=confidence,
            loss=-np.log(of_truth.clip(_LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)),
        )

    def count(self, weights: Floats | None = None) -> MetricCounts:
        """Count every example once, or as often as `weights` [examples] says."""
        weights = np.ones(len(self.truth)) if weights is None else weights
        right = weights * self.right
        seen = len(self.classes)
        of_class = (self.truth, weights), (self.predicted, weights), (self.truth, right)
        of_bin = weights, weights * self.confidence, right
        return MetricCounts(
            classes=self.classes,
            counts=np.stack([np.bincount(place, by, seen) for place, by in of_class]),
            bins=np.stack([np.bincount(self.bins, by, _BINS) for by in of_bin]),
            top=np.array([weights[self.rank < most].sum() for most in TOP.values()]),
            # Not a dot product, whose threads cost more than they save, and round as they like.
            loss=float((weights * self.loss).sum()),
        )


def _rank(ids: Ints, probabilities: Scores) -> Ints:
    of_truth = probabilities[np.arange(len(ids)), ids][:, np.newaxis]
    later = np.arange(probabilities.shape[1]) >= ids[:, np.newaxis]
    # The right one itself is among these, unless it is unknown or no number.
    behind = (probabilities < of_truth) | (probabilities == of_truth) & later
    count = np.where(ids >= 0, np.count_nonzero(behind, axis=1), 0)
    return np.where(count, probabilities.shape[1] - count, _NEVER)


@dataclass(frozen=True, eq=False)
class MetricCounts:
    """Sums over a set of examples; as few numbers as it has classes, however many there are."""

    classes: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """[seen], ascending, as in `Answers`."""
    counts: Floats = field(default_factory=lambda: np.empty((3, 0)))
    """[3, seen], examples: of the class, taken for it, and rightly so."""
    bins: Floats = field(default_factory=lambda: np.zeros((3, _BINS)))
    """[3, bins]: examples, their confidence, and those that are right."""
    top: Floats = field(default_factory=lambda: np.zeros(len(TOP)))
    """Examples whose class is among the most probable ones, for each of `TOP`."""
    loss: float = 0.0
    """Nats."""

    @classmethod
    def of(cls, ids: Ints, probabilities: Scores) -> MetricCounts:
        """Count a batch: [examples], -1 for an unknown label, and [examples, classes]."""
        return Answers.of(ids, probabilities).count() if len(ids) else cls()

    def __add__(self, other: MetricCounts) -> MetricCounts:
        """Return the tally of both sets of examples; the order matters to rounding only."""
        both = np.concatenate([self.classes, other.classes])
        classes, places = np.unique(both, return_inverse=True)
        counts = np.concatenate([self.counts, other.counts], axis=1)
        return MetricCounts(
            classes=classes,
            counts=np.stack([np.bincount(places, row, len(classes)) for row in counts]),
            bins=self.bins + other.bins,
            top=self.top + other.top,
            loss=self.loss + other.loss,
        )

    @property
    def examples(self) -> int:
        """How many were counted."""
        return int(self.counts[0].sum())

    def rate(self) -> tuple[Floats, Floats, Floats]:
        """Return precision, recall and F1, [seen] each; NaN where it would be 0 / 0."""
        support, named, right = self.counts
        return (
            divide(right, named),
            divide(right, support),
            divide(2 * right, support + named),
        )

    def scalars(self) -> Mapping[str, float]:
        """Return every metric that follows from sums; all of them are NaN without examples.

        - accuracy; top_3_accuracy and top_5_accuracy: the right class is among the 3 or 5 most
          probable ones, the first columns of equals.
        - balanced_accuracy: mean recall of the classes that the examples have.
        - macro_precision, macro_recall, macro_f1: means over the classes that the examples have or
          the model names; 0 stands for 0 / 0, as in scikit-learn with `zero_division=0`.
        - ece: expected calibration error of the most probable class, Guo et al. 2017.
        - loss: mean cross-entropy in nats, of probabilities of 1e-7 to 1 - 1e-7.
        """
        _, confidence, right = self.bins
        precision, recall, f1 = self.rate()
        there = ~np.isnan(f1)
        sums = {
            "accuracy": right.sum(),
            **dict(zip(TOP, self.top, strict=True)),
            "ece": np.abs(confidence - right).sum(),
            "loss": self.loss,
        }
        means = {
            "balanced_accuracy": recall[self.counts[0] > 0],
            "macro_precision": np.nan_to_num(precision[there]),
            "macro_recall": np.nan_to_num(recall[there]),
            "macro_f1": f1[there],
        }
        examples = self.examples
        return {
            **{
                name: float(total) / examples if examples else np.nan
                for name, total in sums.items()
            },
            **{
                name: float(values.mean()) if examples else np.nan for name, values in means.items()
            },
        }


def divide(part: Floats, whole: Floats) -> Floats:
    """Return `part` / `whole`, NaN where `whole` is 0."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
