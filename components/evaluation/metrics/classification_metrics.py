"""Metrics of a model overall, per class and per slice, with intervals and against the baseline."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from components.evaluation.metrics.calibration import Bins, bin_by_count, bin_by_width
from components.evaluation.metrics.counts import Counts, mean_known
from components.evaluation.metrics.curves import (
    ClassCurves,
    Roc,
    measure_areas,
    trace_class,
    trace_roc,
)
from components.evaluation.metrics.intervals import Interval, estimate_intervals, f1_interval
from components.evaluation.metrics.metric_table import AUC, METRICS
from components.evaluation.metrics.predictions import (
    Evaluated,
    Floats,
    Ints,
    Predictions,
    PredictionStats,
)
from components.evaluation.metrics.slice_metrics import (
    ConfusedPair,
    SliceMetrics,
    find_confused,
    measure_slices,
)

_MOST_CURVES = 6
# Shown as 1.000.
_PERFECT = 0.9995


@dataclass(frozen=True)
class ModelMetrics:
    """Metrics of a model, in float64."""

    labels: tuple[str, ...]
    """In ascending order; the model's own order is by frequency."""
    scalars: Mapping[str, float]
    """Each of `METRICS`; NaN where it is not defined."""
    confusion: Ints
    """[classes, classes], examples; rows are true, columns predicted."""
    precision: Floats
    """[classes], NaN for a class that is never predicted."""
    recall: Floats
    """[classes], NaN for a class without examples in the split."""
    f1: Floats
    """[classes], NaN for a class that neither occurs nor is predicted."""
    auc: Floats
    """[classes], one-vs-rest; NaN if the split has no example of the class, or no other."""
    average_precision: Floats
    """[classes], NaN likewise."""
    reliability: Bins
    """In bins of equal width, which define the calibration error."""
    calibration: Bins
    """In bins of about equal numbers of examples."""
    roc: Roc | None
    """Micro-average, or of the second of two classes; None if the split has only one class."""

    @property
    def support(self) -> Ints:
        """Number of examples of each class, [classes]."""
        support: Ints = self.confusion.sum(axis=1)
        return support

    def f1_interval(self, row: int) -> Interval | None:
        """Return the interval of the F1 of a class; None where F1 is not defined."""
        right = int(self.confusion[row, row])
        either = int(self.confusion[row].sum() + self.confusion[:, row].sum()) - right
        return f1_interval(right, either) if either else None

    def most_mistaken(self, most: int) -> Ints:
        """Return, in ascending order, the `most` classes with the most false predictions."""
        right = np.diag(self.confusion)
        mistakes = self.support + self.confusion.sum(axis=0) - 2 * right
        return np.sort(np.argsort(-mistakes, kind="stable")[:most])


@dataclass(frozen=True)
class Comparison:
    """Metrics of the candidate, and its comparison with the model in use."""

    metrics: ModelMetrics
    intervals: Mapping[str, Interval]
    """Metric → interval of its value, where there is one."""
    baseline: ModelMetrics | None
    changes: Mapping[str, Interval]
    """Metric → interval of candidate minus baseline, on the same examples; empty without one."""
    curves: tuple[ClassCurves, ...]
    """Curves of the classes with the smallest areas."""
    slices: tuple[SliceMetrics, ...]
    """Ordered by slicing, then by value."""
    confused: tuple[ConfusedPair, ...]
    """Pairs with most examples first."""


def measure(predictions: Predictions) -> ModelMetrics:
    """Compare the most probable class of each example, the first of equals, with its label.

    Examples with labels unknown to the model are mistakes in everything but `confusion`, which has
    no row for them.
    """
    labels, stats = predictions.labels, predictions.stats
    counts = Counts.of(stats)
    columns = sorted(range(len(labels)), key=labels.__getitem__)
    auc, average_precision = measure_areas(predictions.ids, predictions.probabilities)
    scalars = {**counts.scalars(), AUC: mean_known(auc)}
    precision, recall, f1 = (of[1:] for of in (counts.precision, counts.recall, counts.f1))
    return ModelMetrics(
        labels=tuple(labels[column] for column in columns),
        scalars={metric: scalars[metric] for metric in METRICS},
        confusion=_confuse(stats)[np.ix_(columns, columns)],
        precision=precision[columns],
        recall=recall[columns],
        f1=f1[columns],
        auc=auc[columns],
        average_precision=average_precision[columns],
        reliability=bin_by_width(counts),
        calibration=bin_by_count(stats),
        roc=trace_roc(predictions),
    )


def _confuse(stats: PredictionStats) -> Ints:
    cells = (stats.truth * stats.classes + stats.predicted)[stats.truth >= 0]
    shape = (stats.classes, stats.classes)
    return np.bincount(cells, minlength=stats.classes**2).reshape(shape)


def compare(evaluated: Evaluated, *, seed: int = 0) -> Comparison:
    """Measure the candidate and the baseline on the same examples."""
    candidate, baseline = evaluated.candidate, evaluated.baseline
    metrics = measure(candidate)
    intervals, changes = estimate_intervals(candidate, baseline, seed=seed)
    right = baseline.stats.right if baseline else None
    return Comparison(
        metrics=metrics,
        intervals={metric: intervals[metric] for metric in METRICS if metric in intervals},
        baseline=measure(baseline) if baseline else None,
        changes={metric: changes[metric] for metric in METRICS if metric in changes},
        curves=_trace_worst(candidate, metrics),
        slices=measure_slices(evaluated.slices, candidate.stats.right, right),
        confused=find_confused(metrics.labels, metrics.confusion),
    )


def _trace_worst(predictions: Predictions, metrics: ModelMetrics) -> tuple[ClassCurves, ...]:
    """Return the curves of the 6 classes with the smallest areas, the smallest first.

    Perfectly separated classes are left out: their curves show nothing. Of two classes, the curves
    of the second suffice.
    """
    perfect = np.minimum(metrics.auc, metrics.average_precision) >= _PERFECT
    worst = [column for column in np.argsort(metrics.auc, kind="stable") if not perfect[column]]
    if len(metrics.labels) == 2:
        worst = [column for column in worst if column == 1]
    traced = (trace_class(predictions, metrics.labels[column]) for column in worst)
    return tuple(itertools.islice(filter(None, traced), _MOST_CURVES))
