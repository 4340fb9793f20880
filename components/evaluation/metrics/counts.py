"""Counts from which metrics follow, over a set of examples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from components.evaluation.metrics.metric_table import METRICS, TOP
from components.evaluation.metrics.predictions import EDGES, Floats, Ints, PredictionStats


def divide(part: Floats, whole: Floats) -> Floats:
    """Return `part` / `whole`, NaN where `whole` is 0."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)


def mean_known(values: Floats) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan


@dataclass(frozen=True, eq=False)
class Counts:
    """Sums over a set of examples; their size does not grow with the examples."""

    per_class: Floats
    """[3, 1 + classes], examples: of the class, predicted as the class, and both. The first column
    is for labels unknown to the model."""
    bins: Floats
    """[3, bins]: examples, the sum of their confidence, and correct ones."""
    top: Floats
    """Examples whose class is among the most probable ones, for each of `TOP`."""
    loss: float
    """Nats."""

    @classmethod
    def of(cls, stats: PredictionStats, weights: Floats | None = None) -> Counts:
        """Count every example once, or as often as `weights` [examples] says."""
        weights = np.ones(len(stats.truth)) if weights is None else weights
        right = weights * stats.right
        columns = 1 + stats.classes
        of_class = (stats.truth, weights), (stats.predicted, weights), (stats.truth, right)
        of_bin = weights, weights * stats.confidence, right
        return cls(
            per_class=np.stack([np.bincount(column + 1, by, columns) for column, by in of_class]),
            bins=np.stack([np.bincount(stats.bins, by, len(EDGES) - 1) for by in of_bin]),
            top=np.array([weights[stats.rank < most].sum() for most in TOP.values()]),
            # Not a dot product: its threads cost more than they save, and change the rounding.
            loss=float((weights * stats.loss).sum()),
        )

    @cached_property
    def precision(self) -> Floats:
        """Precision, [1 + classes]; NaN for 0 / 0."""
        return divide(self.per_class[2], self.per_class[1])

    @cached_property
    def recall(self) -> Floats:
        """Recall, [1 + classes]; NaN for 0 / 0."""
        return divide(self.per_class[2], self.per_class[0])

    @cached_property
    def f1(self) -> Floats:
        """F1, [1 + classes]; NaN for 0 / 0."""
        return divide(2 * self.per_class[2], self.per_class[0] + self.per_class[1])

    def scalars(self) -> dict[str, float]:
        """Return every metric that follows from counts; NaN without examples."""
        known = ((name, metric.compute) for name, metric in METRICS.items())
        return {name: compute(self) for name, compute in known if compute}

    def fraction(self, total: float) -> float:
        """Return `total` per example."""
        return float(total / (self.per_class[0].sum() or np.nan))

    def mean_seen(self, values: Floats) -> float:
        """Return the mean over the classes that occur or are predicted; 0 / 0 counts as 0.

        As scikit-learn with `zero_division=0`.
        """
        return mean_known(np.nan_to_num(values[~np.isnan(self.f1)]))

    mean_known = staticmethod(mean_known)


def count_confusion(stats: PredictionStats) -> Ints:
    """Return the sparse confusion matrix: true column, predicted column and examples, [3, cells].

    Cells are in ascending order; a true column of -1 is a label unknown to the model.
    """
    cells = (stats.truth + 1) * stats.classes + stats.predicted
    numbers, examples = np.unique(cells, return_counts=True)
    truth, predicted = np.divmod(numbers, stats.classes)
    return np.stack([truth - 1, predicted, examples])
