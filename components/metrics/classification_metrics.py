"""Metrics of a model overall, per class and per slice, with intervals and against the baseline."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from components.contract.confidence import Interval, proportion_interval
from components.metrics.intervals import estimate_intervals, f1_interval, paired_interval
from components.metrics.metric_table import AUC, METRICS
from components.metrics.predictions import (
    Counts,
    Evaluated,
    Flags,
    Floats,
    Ints,
    Predictions,
    PredictionStats,
    find_rows,
    mean_known,
)
from components.metrics.score_metrics import Bins, bin_by_width, measure_areas

_MOST_CONFUSED = 20


@dataclass(frozen=True)
class ModelMetrics:
    """Metrics of a model, in float64."""

    labels: tuple[str, ...]
    """In ascending order; a model may have another one."""
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
    reliability: Bins
    """In bins of equal width, which define the calibration error."""

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
class SliceMetrics:
    """Accuracy on a slice."""

    slicing: str
    """Such as "size"."""
    value: str
    """Such as "32 to 63 px"."""
    examples: int
    accuracy: float
    interval: Interval
    baseline: float | None
    """Accuracy of the current model on the same examples."""
    change: Interval | None
    """Interval of accuracy minus baseline, paired by example."""


@dataclass(frozen=True)
class ConfusedPair:
    """Examples of one class that were predicted as another."""

    label: str
    predicted: str
    examples: int
    share: float
    """Fraction of the examples of `label`, 0 to 1."""


@dataclass(frozen=True)
class Comparison:
    """Metrics of the candidate, and its comparison with the current model."""

    metrics: ModelMetrics
    intervals: Mapping[str, Interval]
    """Metric → interval of its value, where there is one."""
    baseline: ModelMetrics | None
    """Metrics of the current model on the images whose labels it knows; None if there are none."""
    compared: int
    """Number of these images."""
    differences: Mapping[str, float]
    """Metric → candidate minus baseline on these images; empty without any."""
    changes: Mapping[str, Interval]
    """Metric → interval of the difference, where there is one."""
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
    held = predictions.held
    auc = measure_areas(held.ids, held.probabilities)
    scalars = {**counts.scalars(), AUC: mean_known(auc)}
    precision, recall, f1 = (values[1:] for values in (counts.precision, counts.recall, counts.f1))
    return ModelMetrics(
        labels=tuple(labels[column] for column in columns),
        scalars={metric: scalars[metric] for metric in METRICS},
        confusion=_confuse(stats)[np.ix_(columns, columns)],
        precision=precision[columns],
        recall=recall[columns],
        f1=f1[columns],
        auc=auc[columns],
        reliability=bin_by_width(counts),
    )


def _confuse(stats: PredictionStats) -> Ints:
    cells = (stats.truth * stats.classes + stats.predicted)[stats.truth >= 0]
    shape = (stats.classes, stats.classes)
    return np.bincount(cells, minlength=stats.classes**2).reshape(shape)


def compare_models(evaluated: Evaluated) -> Comparison:
    """Measure the candidate; compare it with the baseline on the images whose labels both know."""
    candidate, baseline, known = evaluated.candidate, evaluated.baseline, evaluated.known
    metrics = measure(candidate)
    both = evaluated.on_known_labels()
    intervals, changes = estimate_intervals(*(both or (candidate, None)))
    if both and len(known) < len(candidate.ids):
        intervals, _ = estimate_intervals(candidate, None)
    ours, theirs = map(measure, both) if both else (metrics, None)
    right = candidate.stats.right
    return Comparison(
        metrics=metrics,
        intervals={metric: intervals[metric] for metric in METRICS if metric in intervals},
        baseline=theirs,
        compared=len(known) if theirs else 0,
        differences={
            metric: value - theirs.scalars[metric] for metric, value in ours.scalars.items()
        }
        if theirs
        else {},
        changes={metric: changes[metric] for metric in METRICS if metric in changes},
        slices=measure_slices(
            evaluated.slices, right, baseline.stats.right if baseline else None, known=known
        ),
        confused=find_confused(metrics.labels, metrics.confusion),
    )


def measure_slices(
    slices: Mapping[str, Sequence[str]], right: Flags, baseline: Flags | None, *, known: Ints
) -> tuple[SliceMetrics, ...]:
    """Measure the accuracy on every slice, in the order of slicings, then of values.

    Only the rows `known` are compared with the baseline.
    """
    slicings, measured = list(slices), []
    compared = np.isin(np.arange(len(right)), known)
    rows_of = find_rows(slices)
    for slicing, value in sorted(rows_of, key=lambda key: (slicings.index(key[0]), _order(key[1]))):
        rows = rows_of[slicing, value]
        hits, both = right[rows], compared[rows]
        before = baseline[rows][both] if baseline is not None and both.any() else None
        of_slice = SliceMetrics(
            slicing=slicing,
            value=value,
            examples=len(hits),
            accuracy=float(hits.mean()),
            interval=proportion_interval(int(hits.sum()), len(hits)),
            baseline=None if before is None else float(before.mean()),
            change=None if before is None else paired_interval(hits[both], before),
        )
        measured.append(of_slice)
    return tuple(measured)


def _order(value: str) -> tuple[list[tuple[str, int]], str]:
    """Sort by number: 64 to 127 comes before 128 to 255, and under 64 before both."""
    parts = re.findall(r"(\D*)(\d*)", value.removeprefix("under "))
    return [(text, int(digits) if digits else -1) for text, digits in parts], value


def find_confused(labels: tuple[str, ...], confusion: Ints) -> tuple[ConfusedPair, ...]:
    """Return at most 20 pairs, those with most examples first, then the largest fraction."""
    truth, predicted = np.nonzero(confusion * ~np.eye(len(labels), dtype=bool))
    examples = confusion[truth, predicted]
    fraction = examples / confusion.sum(axis=1)[truth]
    first = np.lexsort((predicted, truth, -fraction, -examples))[:_MOST_CONFUSED]
    return tuple(
        ConfusedPair(labels[truth[i]], labels[predicted[i]], int(examples[i]), float(fraction[i]))
        for i in first
    )
