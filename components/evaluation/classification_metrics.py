"""How good predictions are: overall, per class, per slice, with intervals, against the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from components.evaluation.curves import (
    ClassCurves,
    PrecisionRecall,
    Roc,
    average_known,
    measure_areas,
    trace_class,
    trace_roc,
)
from components.evaluation.intervals import Interval, Judged, bound_metrics
from components.evaluation.metric_counts import EDGES, Answers, MetricCounts, divide
from components.evaluation.predictions import Evaluated, Floats, Ints, Predictions
from components.evaluation.slice_metrics import (
    ConfusedPair,
    SliceMetrics,
    find_confused,
    measure_slices,
)

__all__ = [
    "ACCURACY",
    "AUC",
    "LOWER_IS_BETTER",
    "METRICS",
    "NAMES",
    "ClassCurves",
    "Comparison",
    "ConfusedPair",
    "Interval",
    "ModelMetrics",
    "PrecisionRecall",
    "Reliability",
    "Roc",
    "SliceMetrics",
    "compare",
    "measure",
]

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
"""The numbers over all examples, in the order in which they are shown, and their names in words."""

METRICS = tuple(NAMES)

ACCURACY, AUC = "accuracy", "auc"

LOWER_IS_BETTER = ("ece", "loss")

_MOST_CURVES = 12


@dataclass(frozen=True)
class Reliability:
    """How sure the model is and how often it is right, in bins of equal width of confidence."""

    edges: Floats
    """[bins + 1], 0 to 1."""
    examples: Ints
    """[bins]."""
    confidence: Floats
    """[bins], mean; NaN for an empty bin."""
    accuracy: Floats
    """[bins], NaN for an empty bin."""


@dataclass(frozen=True)
class ModelMetrics:
    """How good predictions are, in float64."""

    labels: tuple[str, ...]
    """In ascending order: the model's own follows from how frequent the classes were."""
    scalars: Mapping[str, float]
    """Each of `METRICS`; NaN where it is not defined."""
    confusion: Ints
    """[classes, classes], examples; rows are true, columns predicted."""
    precision: Floats
    """[classes], NaN for a class that the model never names."""
    recall: Floats
    """[classes], NaN for a class that the split does not have."""
    f1: Floats
    """[classes], NaN for a class of neither."""
    auc: Floats
    """[classes], one against the rest; NaN where the split has no example of it, or no other."""
    average_precision: Floats
    """[classes], NaN likewise."""
    reliability: Reliability
    roc: Roc | None
    """Micro-average, or of the second of two classes; None where the split has but one class."""

    @property
    def support(self) -> Ints:
        """Examples of each class, [classes]."""
        support: Ints = self.confusion.sum(axis=1)
        return support

    def most_mistaken(self, most: int) -> Ints:
        """Return, in ascending order, the `most` classes that take part in most mistakes."""
        right = np.diag(self.confusion)
        mistakes = self.support + self.confusion.sum(axis=0) - 2 * right
        return np.sort(np.argsort(-mistakes, kind="stable")[:most])


@dataclass(frozen=True)
class Comparison:
    """The candidate, and how it stands against the model in use."""

    measures: ModelMetrics
    intervals: Mapping[str, Interval]
    """Metric → of its value; not there where it cannot be told."""
    baseline: ModelMetrics | None
    changes: Mapping[str, Interval]
    """Metric → of candidate less baseline, on the same examples; empty without a baseline."""
    curves: tuple[ClassCurves, ...]
    """Of the classes that are told apart worst."""
    slices: tuple[SliceMetrics, ...]
    """By slicing, then by value."""
    confused: tuple[ConfusedPair, ...]
    """Most examples first."""


def measure(predictions: Predictions) -> ModelMetrics:
    """Compare the most probable class of each example, the first of equals, with its label.

    Examples of labels that the model does not know are mistakes in all but `confusion`, which has
    no row for them.
    """
    return _measure(Judged.of(predictions))


def _measure(model: Judged) -> ModelMetrics:
    ids, probabilities = model.predictions.ids, model.predictions.probabilities
    labels, tally = model.predictions.labels, model.answers.count()
    columns = sorted(range(len(labels)), key=labels.__getitem__)
    auc, average_precision = measure_areas(ids, probabilities)
    scalars = {**tally.scalars(), "auc": average_known(auc)}
    precision, recall, f1 = (_spread(tally.classes, of, len(labels)) for of in tally.rate())
    return ModelMetrics(
        labels=tuple(labels[column] for column in columns),
        scalars={metric: scalars[metric] for metric in METRICS},
        confusion=_confuse(model.answers, len(labels))[np.ix_(columns, columns)],
        precision=precision[columns],
        recall=recall[columns],
        f1=f1[columns],
        auc=auc[columns],
        average_precision=average_precision[columns],
        reliability=_make_reliability(tally),
        roc=trace_roc(model.predictions),
    )


def _spread(seen: Ints, values: Floats, classes: int) -> Floats:
    """Return [classes] of [seen], NaN for the others; -1 is none of them."""
    spread = np.full(classes, np.nan)
    spread[seen[seen >= 0]] = values[seen >= 0]
    return spread


def _confuse(answers: Answers, classes: int) -> Ints:
    truth, predicted = answers.classes[answers.truth], answers.classes[answers.predicted]
    cells = (truth * classes + predicted)[truth >= 0]
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)


def _make_reliability(tally: MetricCounts) -> Reliability:
    examples, confidence, right = tally.bins
    return Reliability(
        edges=EDGES.copy(),
        examples=examples.astype(np.int64),
        confidence=divide(confidence, examples),
        accuracy=divide(right, examples),
    )


def compare(evaluated: Evaluated, *, seed: int = 0) -> Comparison:
    """Measure the candidate and the baseline on the same examples.

    Args:
        evaluated: at least one example; the models may differ in labels and in their order.
        seed: of the resamples that `bound_metrics` bounds metrics by.
    """
    candidate = Judged.of(evaluated.candidate)
    baseline = Judged.of(evaluated.baseline) if evaluated.baseline else None
    measures = _measure(candidate)
    intervals, changes = bound_metrics(candidate, baseline, seed=seed)
    return Comparison(
        measures=measures,
        intervals={metric: intervals[metric] for metric in METRICS if metric in intervals},
        baseline=_measure(baseline) if baseline else None,
        changes={metric: changes[metric] for metric in METRICS if metric in changes},
        curves=_trace_worst(evaluated.candidate, measures),
        slices=measure_slices(
            evaluated.slices, candidate.answers.right, baseline.answers.right if baseline else None
        ),
        confused=find_confused(measures.labels, measures.confusion),
    )


def _trace_worst(predictions: Predictions, measures: ModelMetrics) -> tuple[ClassCurves, ...]:
    """Return the curves of the 12 classes of least area; of two classes, the second tells all."""
    worst = np.sort(np.argsort(measures.auc, kind="stable")[:_MOST_CURVES])
    shown = worst[1:] if len(measures.labels) == 2 else worst
    curves = (trace_class(predictions, measures.labels[column]) for column in shown)
    return tuple(of_class for of_class in curves if of_class)
