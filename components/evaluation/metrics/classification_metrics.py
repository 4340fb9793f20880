"""How good predictions are: overall, per class and slice, with intervals, against the baseline."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from components.evaluation.metrics.calibration import Reliability, bin_by_count, bin_by_width
from components.evaluation.metrics.curves import (
    ClassCurves,
    Roc,
    measure_areas,
    trace_class,
    trace_roc,
)
from components.evaluation.metrics.intervals import Interval, estimate_intervals, f1_interval
from components.evaluation.metrics.metric_counts import MetricCounts, mean_known
from components.evaluation.metrics.predictions import (
    Answers,
    Evaluated,
    Floats,
    Ints,
    Predictions,
)
from components.evaluation.metrics.slice_metrics import (
    ConfusedPair,
    SliceMetrics,
    find_confused,
    measure_slices,
)

NAMES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "top_3_accuracy": "top-3 accuracy",
    "top_5_accuracy": "top-5 accuracy",
    "macro_precision": "macro precision",
    "macro_recall": "macro recall",
    "macro_f1": "macro F1",
    "auc": "macro ROC AUC",
    "ece": "calibration error",
    "loss": "loss",
}
"""The metrics over all examples, in the order in which they are shown, and their names in words."""

METRICS = tuple(NAMES)

ACCURACY, AUC = "accuracy", "auc"

LOWER_IS_BETTER = ("ece", "loss")

_MOST_CURVES = 6
# Shown as 1.000.
_PERFECT = 0.9995


@dataclass(frozen=True)
class ModelMetrics:
    """How good predictions are, in float64."""

    labels: tuple[str, ...]
    """In ascending order; the model's own order is by frequency."""
    scalars: Mapping[str, float]
    """Each of `METRICS`; NaN where it is not defined."""
    confusion: Ints
    """[classes, classes], examples; rows are true, columns predicted."""
    precision: Floats
    """[classes], NaN for a class that the model never predicts."""
    recall: Floats
    """[classes], NaN for a class without examples in the split."""
    f1: Floats
    """[classes], NaN for a class that is neither there nor predicted."""
    auc: Floats
    """[classes], each against the rest; NaN where the split has no example of it, or no other."""
    average_precision: Floats
    """[classes], NaN likewise."""
    reliability: Reliability
    """In bins of equal width, from which the calibration error follows."""
    calibration: Reliability
    """In bins of about as many examples each."""
    roc: Roc | None
    """Micro-average, or of the second of two classes; None where the split has only one class."""

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
        """Return, in ascending order, the `most` classes with the most mistakes, either way."""
        right = np.diag(self.confusion)
        mistakes = self.support + self.confusion.sum(axis=0) - 2 * right
        return np.sort(np.argsort(-mistakes, kind="stable")[:most])


@dataclass(frozen=True)
class Comparison:
    """The candidate, and how it stands against the model in use."""

    metrics: ModelMetrics
    intervals: Mapping[str, Interval]
    """Metric → interval of its value, of those that have one."""
    baseline: ModelMetrics | None
    changes: Mapping[str, Interval]
    """Metric → interval of candidate less baseline, on the same examples; empty without one."""
    curves: tuple[ClassCurves, ...]
    """Curves of the classes that are told apart worst."""
    slices: tuple[SliceMetrics, ...]
    """Ordered by slicing, then by value."""
    confused: tuple[ConfusedPair, ...]
    """Pairs of most examples first."""


def measure(predictions: Predictions) -> ModelMetrics:
    """Compare the most probable class of each example, the first of equals, with its label.

    Examples of labels that the model does not know are mistakes in all but `confusion`, which has
    no row for them.
    """
    labels, counts = predictions.labels, MetricCounts.of(predictions.answers)
    columns = sorted(range(len(labels)), key=labels.__getitem__)
    auc, average_precision = measure_areas(predictions.ids, predictions.probabilities)
    scalars = {**counts.scalars(), AUC: mean_known(auc)}
    precision, recall, f1 = (_spread(counts.classes, of, len(labels)) for of in counts.rates())
    return ModelMetrics(
        labels=tuple(labels[column] for column in columns),
        scalars={metric: scalars[metric] for metric in METRICS},
        confusion=_confuse(predictions.answers, len(labels))[np.ix_(columns, columns)],
        precision=precision[columns],
        recall=recall[columns],
        f1=f1[columns],
        auc=auc[columns],
        average_precision=average_precision[columns],
        reliability=bin_by_width(counts),
        calibration=bin_by_count(predictions.answers),
        roc=trace_roc(predictions),
    )


def _spread(seen: Ints, values: Floats, classes: int) -> Floats:
    """Return values [seen] as [classes], NaN for the others; -1 is none of them."""
    spread = np.full(classes, np.nan)
    spread[seen[seen >= 0]] = values[seen >= 0]
    return spread


def _confuse(answers: Answers, classes: int) -> Ints:
    truth, predicted = answers.classes[answers.truth], answers.classes[answers.predicted]
    cells = (truth * classes + predicted)[truth >= 0]
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)


def compare(evaluated: Evaluated, *, seed: int = 0) -> Comparison:
    """Measure the candidate and the baseline on the same examples.

    Args:
        evaluated: at least one example; the models may differ in labels and in their order.
        seed: seed of the resamples that `estimate_intervals` draws.
    """
    candidate, baseline = evaluated.candidate, evaluated.baseline
    metrics = measure(candidate)
    intervals, changes = estimate_intervals(candidate, baseline, seed=seed)
    right = baseline.answers.right if baseline else None
    return Comparison(
        metrics=metrics,
        intervals={metric: intervals[metric] for metric in METRICS if metric in intervals},
        baseline=measure(baseline) if baseline else None,
        changes={metric: changes[metric] for metric in METRICS if metric in changes},
        curves=_trace_worst(candidate, metrics),
        slices=measure_slices(evaluated.slices, candidate.answers.right, right),
        confused=find_confused(metrics.labels, metrics.confusion),
    )


def _trace_worst(predictions: Predictions, metrics: ModelMetrics) -> tuple[ClassCurves, ...]:
    """Return the curves of the 6 classes of least area, the least first.

    Those that are told apart perfectly are left out: such curves have nothing to show. Of two
    classes, the second tells all.
    """
    perfect = np.minimum(metrics.auc, metrics.average_precision) >= _PERFECT
    worst = [column for column in np.argsort(metrics.auc, kind="stable") if not perfect[column]]
    if len(metrics.labels) == 2:
        worst = [column for column in worst if column == 1]
    traced = (trace_class(predictions, metrics.labels[column]) for column in worst)
    return tuple(itertools.islice(filter(None, traced), _MOST_CURVES))
