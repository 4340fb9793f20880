"""Predictions of a model and of the current model, and what is counted over them.

Statistics of each example follow from the predictions, counts over any set of examples follow from
the statistics, and metrics follow from the counts.
"""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from components.metrics.metric_table import METRICS, TOP

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Scores = NDArray[np.floating[Any]]

SliceKey: TypeAlias = tuple[str, str]
"""Slicing and value, such as ("format", "png")."""

OVERALL: SliceKey = ("", "")
"""The slice of all examples."""

EDGES = np.linspace(0, 1, 15 + 1)
"""Edges of the confidence bins, as in Guo et al. 2017, "On Calibration of Modern Neural
Networks"."""

# As in Keras, so that the loss is the training loss: float32 has probabilities of exactly 0.
_LEAST_PROBABILITY = 1e-7

MOST_LOSS = -math.log(_LEAST_PROBABILITY)
"""Loss, in nats, of an example whose class gets a probability of 0."""

# Examples whose ranks are computed at once, which takes as much memory as their probabilities.
_BLOCK = 4096

# Rank of a class that the model does not rank.
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class PredictionStats:
    """Per-example statistics of a model's predictions, from which metrics are computed."""

    classes: int
    """Number of classes that the model knows."""
    truth: Ints
    """[examples], column of the true class; -1 for a label unknown to the model."""
    predicted: Ints
    """[examples], column of the predicted class."""
    rank: Ints
    """[examples], number of classes ranked before the true one."""
    bins: Ints
    """[examples], bin of the confidence, which lies in (lower edge, upper edge]."""
    confidence: Floats
    """[examples], probability of the predicted class, 0 to 1."""
    loss: Floats
    """[examples], nats."""

    @property
    def right(self) -> Flags:
        """Whether the predicted class is the true one, [examples]."""
        right: Flags = self.truth == self.predicted
        return right

    @classmethod
    def of(cls, ids: Ints, probabilities: Scores) -> Self:
        """Compare probabilities [examples, classes] with the columns of the true classes.

        `ids` [examples] are -1 for a label unknown to the model: always wrong, with the highest
        possible loss. Probabilities are normalized to a sum of 1 in each row.
        """
        if len(ids) > _BLOCK:
            starts = range(0, len(ids), _BLOCK)
            blocks = (slice(start, start + _BLOCK) for start in starts)
            return cls.concatenate([cls.of(ids[rows], probabilities[rows]) for rows in blocks])
        examples = np.arange(len(ids))
        predicted = probabilities.argmax(axis=1)
        sums = probabilities.sum(axis=1, dtype=np.float64)
        confidence = probabilities[examples, predicted] / sums
        of_truth = np.where(ids >= 0, probabilities[examples, ids] / sums, 0)
        return cls(
            classes=probabilities.shape[1],
            truth=ids,
            predicted=predicted,
            rank=_rank(ids, probabilities),
            bins=(EDGES.searchsorted(confidence) - 1).clip(0, len(EDGES) - 2),
            confidence=confidence,
            loss=-np.log(of_truth.clip(_LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Join the statistics of at least one set of examples, all of the same model."""
        arrays = {name: np.concatenate([vars(part)[name] for part in parts]) for name in _ARRAYS}
        return cls(classes=parts[0].classes, **arrays)

    def take(self, rows: Sequence[int] | Ints) -> Self:
        """Return the statistics of some of the examples."""
        return replace(self, **{name: vars(self)[name][rows] for name in _ARRAYS})


_ARRAYS = ("truth", "predicted", "rank", "bins", "confidence", "loss")


def _rank(ids: Ints, probabilities: Scores) -> Ints:
    of_truth = probabilities[np.arange(len(ids)), ids][:, np.newaxis]
    later = np.arange(probabilities.shape[1]) >= ids[:, np.newaxis]
    # Includes the true class itself, unless it is unknown or its probability is NaN.
    behind = (probabilities < of_truth) | (probabilities == of_truth) & later
    count = np.where(ids >= 0, np.count_nonzero(behind, axis=1), 0)
    return np.where(count, probabilities.shape[1] - count, _NEVER)


@dataclass(frozen=True)
class Predictions:
    """A model's predictions, one row per example."""

    labels: tuple[str, ...]
    """Label of each column, in the model's order."""
    ids: Ints
    """[examples], column of the true class; -1 for a label unknown to the model."""
    probabilities: NDArray[np.float32]
    """[held, classes], each row adds up to 1."""
    rows: Ints | None = None
    """[held], ascending: the examples whose probabilities are in memory; None: all."""
    statistics: PredictionStats | None = None
    """Of all examples, where `rows` are only some."""

    def take(self, rows: Ints) -> Self:
        """Return the predictions for some of the examples, `rows` in ascending order."""
        if self.rows is None or self.statistics is None:
            return type(self)(self.labels, self.ids[rows], self.probabilities[rows])
        shared = np.isin(self.rows, rows)
        return type(self)(
            self.labels,
            self.ids[rows],
            self.probabilities[shared],
            np.searchsorted(rows, self.rows[shared]),
            self.statistics.take(rows),
        )

    @cached_property
    def stats(self) -> PredictionStats:
        """Statistics of each example, computed once."""
        return self.statistics or PredictionStats.of(self.ids, self.probabilities)

    @cached_property
    def held(self) -> Self:
        """Predictions for the examples whose probabilities are in memory."""
        if self.rows is None:
            return self
        return type(self)(self.labels, self.ids[self.rows], self.probabilities)


def drop_probabilities(model: Predictions) -> Predictions:
    """Return the predictions with the statistics of all examples, but without probabilities."""
    none = np.empty(0, np.int64)
    return Predictions(model.labels, model.ids, model.probabilities[:0].copy(), none, model.stats)


@dataclass(frozen=True)
class Evaluated:
    """The examples of the evaluated split, in the order of its shards."""

    filenames: tuple[str, ...]
    slices: Mapping[str, tuple[str, ...]]
    """Slicing, such as "class" or "size" → value of each example."""
    candidate: Predictions
    baseline: Predictions | None = None
    known_scores: NDArray[np.float32] | None = None
    """`known_score` of the candidate for each example, if it has this output."""

    @cached_property
    def known(self) -> Ints:
        """Rows of the examples whose labels both models know, all without a baseline."""
        return find_known(model.ids for model in (self.candidate, self.baseline) if model)

    def on_known_labels(self) -> tuple[Predictions, Predictions] | None:
        """Return the predictions of both models for `known`; None if there are none to compare."""
        if self.baseline is None or not len(self.known):
            return None
        if len(self.known) == len(self.filenames):
            return self.candidate, self.baseline
        return self.candidate.take(self.known), self.baseline.take(self.known)


def find_known(ids: Iterable[Ints]) -> Ints:
    """Return the rows of the examples whose labels all models know; `ids` as in `Predictions`."""
    return np.flatnonzero(np.logical_and.reduce([columns >= 0 for columns in ids]))


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
    def of(cls, stats: PredictionStats, weights: Floats | None = None) -> Self:
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


def find_rows(slices: Mapping[str, Sequence[str]]) -> Mapping[SliceKey, Sequence[int]]:
    """Return the rows of the examples in each slice; `slices` is slicing → value of each."""
    rows: dict[SliceKey, array[int]] = {}
    for slicing, values in slices.items():
        for row, value in enumerate(values):
            rows.setdefault((slicing, value), array("q")).append(row)
    return rows
