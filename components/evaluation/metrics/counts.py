"""Counts from which metrics follow: over a set of examples, and over all slices of it at once.

A batch is counted in a few NumPy calls, however many slices its examples fall into.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from components.evaluation.metrics.metric_table import METRICS, TOP
from components.evaluation.metrics.predictions import (
    EDGES,
    Evaluated,
    Floats,
    Ints,
    PredictionStats,
)

_BINS = len(EDGES) - 1

SliceKey: TypeAlias = tuple[str, str]
"""Slicing and value, such as ("format", "png")."""

OVERALL: SliceKey = ("", "")
"""The slice of all examples."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Sums over a set of examples; their size grows with the classes, not with the examples."""

    classes: Ints
    """[seen], ascending, as in `PredictionStats`."""
    per_class: Floats
    """[3, seen], examples: of the class, predicted as the class, and both."""
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
        seen = len(stats.classes)
        of_class = (stats.truth, weights), (stats.predicted, weights), (stats.truth, right)
        of_bin = weights, weights * stats.confidence, right
        return cls(
            classes=stats.classes,
            per_class=np.stack([np.bincount(column, by, seen) for column, by in of_class]),
            bins=np.stack([np.bincount(stats.bins, by, _BINS) for by in of_bin]),
            top=np.array([weights[stats.rank < most].sum() for most in TOP.values()]),
            # Not a dot product: its threads cost more than they save, and change the rounding.
            loss=float((weights * stats.loss).sum()),
        )

    @property
    def examples(self) -> int:
        """Number of examples."""
        return int(self.per_class[0].sum())

    @cached_property
    def precision(self) -> Floats:
        """Precision, [seen]; NaN for 0 / 0."""
        return divide(self.per_class[2], self.per_class[1])

    @cached_property
    def recall(self) -> Floats:
        """Recall, [seen]; NaN for 0 / 0."""
        return divide(self.per_class[2], self.per_class[0])

    @cached_property
    def f1(self) -> Floats:
        """F1, [seen]; NaN for 0 / 0."""
        return divide(2 * self.per_class[2], self.per_class[0] + self.per_class[1])

    def scalars(self) -> dict[str, float]:
        """Return every metric that follows from counts; NaN without examples."""
        known = ((name, metric.compute) for name, metric in METRICS.items())
        return {name: compute(self) for name, compute in known if compute}

    def fraction(self, total: float) -> float:
        """Return `total` per example."""
        return float(total / (self.examples or np.nan))

    def mean_seen(self, values: Floats) -> float:
        """Return the mean over the classes that occur or are predicted; 0 / 0 counts as 0.

        As scikit-learn with `zero_division=0`.
        """
        return mean_known(np.nan_to_num(values[~np.isnan(self.f1)]))

    def mean_known(self, values: Floats) -> float:
        """Return the mean over the classes for which the value is defined."""
        return mean_known(values)


def divide(part: Floats, whole: Floats) -> Floats:
    """Return `part` / `whole`, NaN where `whole` is 0."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)


def mean_known(values: Floats) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan


@dataclass(frozen=True, eq=False)
class SlicedCounts:
    """`Counts` of every slice of a set of examples, in shared arrays."""

    slices: tuple[SliceKey, ...]
    """Ascending; the first one is `OVERALL`."""
    cells: Ints
    """[4, cells]: index into `slices`, column of the true class, column of the predicted class,
    examples; ascending. -1 is a label unknown to the model."""
    bins: Floats
    """[slices, 3, bins], as in `Counts`."""
    top: Floats
    """[slices, metrics], likewise."""
    loss: Floats
    """[slices], nats."""

    @classmethod
    def of(cls, stats: PredictionStats, slices: Mapping[str, Sequence[str]]) -> SlicedCounts:
        """Count every example in all of its slices; `slices` is slicing → value of each example."""
        examples = len(stats.truth)
        columns = [[OVERALL] * examples]
        columns += [[(slicing, text) for text in texts] for slicing, texts in slices.items()]
        keys = sorted({key for column in columns for key in column})
        rows = {key: row for row, key in enumerate(keys)}
        # One entry for each slice that an example is in.
        row = np.array([rows[key] for column in columns for key in column], np.int64)
        entry = np.tile(np.arange(examples), len(columns))
        truth, predicted = (stats.classes[of] for of in (stats.truth, stats.predicted))
        of_bin = (None, stats.confidence[entry], stats.right[entry])
        in_bin = row * _BINS + stats.bins[entry]
        bins = [np.bincount(in_bin, weights, len(keys) * _BINS) for weights in of_bin]
        rank = stats.rank[entry]
        top = [np.bincount(row[rank < most], None, len(keys)) for most in TOP.values()]
        return cls(
            slices=tuple(keys),
            cells=_count_cells(row, truth[entry], predicted[entry], np.ones(len(row), np.int64)),
            bins=np.stack(bins).reshape(3, len(keys), _BINS).swapaxes(0, 1).astype(float),
            top=np.stack(top, axis=1).astype(float),
            loss=np.bincount(row, stats.loss[entry], len(keys)).astype(float),
        )

    @classmethod
    def add_up(cls, parts: Sequence[SlicedCounts]) -> SlicedCounts:
        """Add up the counts of at least one set of examples."""
        keys = sorted({key for part in parts for key in part.slices})
        rows = {key: row for row, key in enumerate(keys)}
        bins, top = np.zeros((len(keys), 3, _BINS)), np.zeros((len(keys), len(TOP)))
        loss, cells = np.zeros(len(keys)), []
        for part in parts:
            moved = np.array([rows[key] for key in part.slices], np.int64)
            bins[moved] += part.bins
            top[moved] += part.top
            loss[moved] += part.loss
            cells.append(np.concatenate([moved[part.cells[:1]], part.cells[1:]]))
        return cls(tuple(keys), _count_cells(*np.concatenate(cells, axis=1)), bins, top, loss)

    def select(self, index: int) -> Counts:
        """Return the counts of one slice, by its index in `slices`."""
        truth, predicted, examples = self.confusion(index)
        classes, columns = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
        of_truth, of_predicted = np.split(columns, 2)
        right = examples * (truth == predicted)
        counted = (of_truth, examples), (of_predicted, examples), (of_truth, right)
        return Counts(
            classes=classes,
            per_class=np.stack([np.bincount(by, number, len(classes)) for by, number in counted]),
            bins=self.bins[index],
            top=self.top[index],
            loss=float(self.loss[index]),
        )

    def confusion(self, index: int) -> Ints:
        """Return the sparse confusion matrix of one slice, [3, cells], as in `cells`."""
        start, end = np.searchsorted(self.cells[0], [index, index + 1])
        return self.cells[1:, start:end]


def _count_cells(row: Ints, truth: Ints, predicted: Ints, examples: Ints) -> Ints:
    """Add up the examples of equal cells, [4, cells], in ascending order."""
    # One number per cell sorts ten times as fast as three. -1 becomes 0.
    most = int(max(truth.max(initial=0), predicted.max(initial=0))) + 2
    keys, columns = np.unique((row * most + truth + 1) * most + predicted + 1, return_inverse=True)
    rest, predicted = np.divmod(keys, most)
    row, truth = np.divmod(rest, most)
    total = np.bincount(columns, examples, len(keys)).astype(np.int64)
    return np.stack([row, truth - 1, predicted - 1, total])


@dataclass(frozen=True)
class ModelCounts:
    """Counts of all models on the same examples."""

    models: tuple[SlicedCounts, ...]
    """Of the candidate and, if there is one, the model in use."""
    gained: int
    """Examples that only the candidate is right about."""
    lost: int
    """Examples that only the model in use is right about."""

    @classmethod
    def of(cls, batches: Iterable[Evaluated]) -> ModelCounts:
        """Count the examples of at least one batch."""
        counts, gained, lost = [], 0, 0
        for batch in batches:
            stats = [model.stats for model in (batch.candidate, batch.baseline) if model]
            counts.append([SlicedCounts.of(of_model, batch.slices) for of_model in stats])
            right, before = stats[0].right, stats[-1].right
            gained += int(np.count_nonzero(right & ~before))
            lost += int(np.count_nonzero(before & ~right))
        models = zip(*counts, strict=True)
        return cls(tuple(SlicedCounts.add_up(of_model) for of_model in models), gained, lost)
