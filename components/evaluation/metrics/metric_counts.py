"""Counts of a set of examples that add up, on one machine or on many; metrics follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from components.evaluation.metrics.predictions import EDGES, Answers, Floats, Ints

_BINS = len(EDGES) - 1

TOP = {"top_3_accuracy": 3, "top_5_accuracy": 5}
"""Metric → among how many of the most probable classes the right one must be."""


@dataclass(frozen=True, eq=False)
class MetricCounts:
    """Sums over a set of examples; their size grows with the classes, not with the examples."""

    classes: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """[seen], ascending, as in `Answers`."""
    counts: Floats = field(default_factory=lambda: np.empty((3, 0)))
    """[3, seen], examples: of the class, predicted as it, and both."""
    bins: Floats = field(default_factory=lambda: np.zeros((3, _BINS)))
    """[3, bins]: examples, their confidence, and those that are right."""
    top: Floats = field(default_factory=lambda: np.zeros(len(TOP)))
    """Examples whose class is among the most probable ones, for each of `TOP`."""
    loss: float = 0.0
    """Nats."""

    @classmethod
    def of(cls, answers: Answers, weights: Floats | None = None) -> MetricCounts:
        """Count every example once, or as often as `weights` [examples] says."""
        weights = np.ones(len(answers.truth)) if weights is None else weights
        right = weights * answers.right
        seen = len(answers.classes)
        of_class = (answers.truth, weights), (answers.predicted, weights), (answers.truth, right)
        of_bin = weights, weights * answers.confidence, right
        return cls(
            classes=answers.classes,
            counts=np.stack([np.bincount(place, by, seen) for place, by in of_class]),
            bins=np.stack([np.bincount(answers.bins, by, _BINS) for by in of_bin]),
            top=np.array([weights[answers.rank < most].sum() for most in TOP.values()]),
            # Not a dot product: its threads cost more than they save, and round as they like.
            loss=float((weights * answers.loss).sum()),
        )

    def __add__(self, other: MetricCounts) -> MetricCounts:
        """Return the counts of both sets of examples; the order matters to rounding only."""
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

    def rates(self) -> tuple[Floats, Floats, Floats]:
        """Return precision, recall and F1, [seen] each; NaN where it would be 0 / 0."""
        support, predicted, right = self.counts
        return (
            divide(right, predicted),
            divide(right, support),
            divide(2 * right, support + predicted),
        )

    def scalars(self) -> Mapping[str, float]:
        """Return every metric that follows from sums; all of them are NaN without examples.

        - accuracy; top_3_accuracy and top_5_accuracy: the right class is among the 3 or 5 most
          probable ones; of equally probable ones, the first columns count.
        - balanced_accuracy: mean recall of the classes that the examples have.
        - macro_precision, macro_recall, macro_f1: means over the classes that the examples have or
          the model predicts; 0 stands for 0 / 0, as in scikit-learn with `zero_division=0`.
        - ece: expected calibration error of the most probable class, Guo et al. 2017.
        - loss: mean cross-entropy in nats, of probabilities clipped to 1e-7 and 1 - 1e-7.
        """
        examples = self.examples or np.nan
        _, confidence, right = self.bins
        precision, recall, f1 = self.rates()
        there = ~np.isnan(f1)
        return {
            "accuracy": float(right.sum() / examples),
            **dict(zip(TOP, (self.top / examples).tolist(), strict=True)),
            "ece": float(np.abs(confidence - right).sum() / examples),
            "loss": self.loss / examples,
            "balanced_accuracy": mean_known(recall),
            "macro_precision": mean_known(np.nan_to_num(precision[there])),
            "macro_recall": mean_known(np.nan_to_num(recall[there])),
            "macro_f1": mean_known(f1),
        }


def divide(part: Floats, whole: Floats) -> Floats:
    """Return `part` / `whole`, NaN where `whole` is 0."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)


def mean_known(values: Floats) -> float:
    """Return the mean of the values that are not NaN; NaN where there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan
