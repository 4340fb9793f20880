"""How well scores tell classes apart at any threshold: ROC and precision-recall curves, areas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn import metrics

from components.evaluation.metric_counts import Flags, Scores
from components.evaluation.predictions import Floats, Ints, Predictions

_MOST_POINTS = 100
# Columns that are sorted at once: as rows, so that reading them is quick.
_COLUMNS = 32


@dataclass(frozen=True)
class Roc:
    """A receiver operating characteristic from (0, 0) to (1, 1), thinned to its shape."""

    false_positive_rate: Floats
    """[points], never falling."""
    recall: Floats
    """[points], never falling."""
    thresholds: Floats
    """[points], 0 to 1, never rising."""
    area: float
    """Under all points, before they were thinned."""
    positive: str | None
    """The label it is about; None for the micro-average of each class against the rest."""


@dataclass(frozen=True)
class PrecisionRecall:
    """Precision over recall of one class against the rest, thinned to its shape."""

    recall: Floats
    """[points], never rising, as scikit-learn has it."""
    precision: Floats
    """[points]."""
    average: float
    """Average precision of all points, before they were thinned."""


@dataclass(frozen=True)
class ClassCurves:
    """The curves of one class against the rest."""

    label: str
    roc: Roc
    precision_recall: PrecisionRecall


def measure_areas(ids: Ints, probabilities: Scores) -> tuple[Floats, Floats]:
    """Return ROC AUC and average precision of each class against the rest, [classes] each.

    They are scikit-learn's `roc_auc_score` and `average_precision_score` of each column, which
    take minutes for 50,000 examples and 1,000 classes.

    Args:
        ids: [examples], the column of the right answer; -1 is none of them.
        probabilities: [examples, classes].

    Returns:
        NaN for a class with no example, or no other, or of scores that are no numbers.
    """
    classes = probabilities.shape[1]
    rows = np.argsort(ids, kind="stable")
    ends = np.searchsorted(ids[rows], np.arange(classes + 1))
    areas = np.full((classes, 2), np.nan)
    for first in range(0, classes, _COLUMNS):
        columns = np.ascontiguousarray(probabilities[:, first : first + _COLUMNS].T)
        for column, scores in enumerate(columns, start=first):
            positive = scores[rows[ends[column] : ends[column + 1]]]
            if 0 < len(positive) < len(ids) and np.isfinite(scores).all():
                areas[column] = _measure_areas(np.sort(positive), np.sort(scores))
    return areas[:, 0], areas[:, 1]


def _measure_areas(positive: Scores, everything: Scores) -> tuple[float, float]:
    """Take both in ascending order, of which `positive` is a part."""
    below, up_to = (np.searchsorted(everything, positive, side) for side in ("left", "right"))
    own_below, own_up_to = (np.searchsorted(positive, positive, side) for side in ("left", "right"))
    # Of equal scores, half count as below.
    negatives_below = (below - own_below + up_to - own_up_to) / 2
    precision = (len(positive) - own_below) / (len(everything) - below)
    area = negatives_below.mean() / (len(everything) - len(positive))
    return float(area), float(precision.mean())


def mean_auc(ids: Ints, probabilities: Scores) -> float:
    """Return the mean ROC AUC of the classes against the rest; NaN where none has one.

    It is scikit-learn's `roc_auc_score` with "ovr" and "macro", without the classes that have no
    example, or no other. Of two classes, both have the same area.

    Args:
        ids: [examples], the column of the right answer; -1 is none of them.
        probabilities: [examples, classes].
    """
    return average_known(measure_areas(ids, probabilities)[0])


def average_known(values: Floats) -> float:
    """Return the mean of those that are numbers; NaN where none is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan


def trace_roc(predictions: Predictions) -> Roc | None:
    """Take the second of two classes, by name, as the positive one, else micro-average.

    Returns:
        None where all examples are of one class, or probabilities are no numbers.
    """
    labels, ids, probabilities = predictions.labels, predictions.ids, predictions.probabilities
    if len(np.unique(ids)) < 2:
        return None
    if len(labels) == 2:
        return _trace_class(predictions, labels.index(max(labels)))
    truth = np.zeros(probabilities.shape, bool)
    known = np.flatnonzero(ids >= 0)
    truth[known, ids[known]] = True
    return _trace(truth.ravel(), probabilities.ravel(), positive=None)


def _trace_class(predictions: Predictions, column: int) -> Roc | None:
    scores = predictions.probabilities[:, column]
    return _trace(predictions.ids == column, scores, positive=predictions.labels[column])


def _trace(truth: Flags, scores: Scores, *, positive: str | None) -> Roc | None:
    if truth.all() or not truth.any() or not np.isfinite(scores).all():
        return None
    thresholds, false_positive_rate, recall = _find_corners(truth, scores)
    kept = _thin(false_positive_rate, recall)
    return Roc(
        false_positive_rate[kept],
        recall[kept],
        thresholds[kept],
        area=float(metrics.auc(false_positive_rate, recall)),
        positive=positive,
    )


def trace_class(predictions: Predictions, label: str) -> ClassCurves | None:
    """Return the curves of a class against the rest; None where `measure_areas` gives NaN."""
    column = predictions.labels.index(label)
    roc = _trace_class(predictions, column)
    if not roc:
        return None
    truth, scores = predictions.ids == column, predictions.probabilities[:, column]
    precision, recall, _ = metrics.precision_recall_curve(truth, scores)
    kept = _thin(recall, precision)
    average = float(-(np.diff(recall) * precision[:-1]).sum())
    return ClassCurves(label, roc, PrecisionRecall(recall[kept], precision[kept], average))


def _find_corners(truth: Flags, scores: Scores) -> tuple[Floats, Floats, Floats]:
    """Return threshold, false positive rate and recall, [points] each; straight between them.

    scikit-learn's `roc_curve` gives the same curve; it takes a minute for the scores of 50,000
    examples and 1,000 classes, as it orders examples, not numbers.
    """
    highest_first = np.unique(scores[truth])[::-1]
    rates = []
    for of_kind in (scores[~truth], scores[truth]):
        of_kind.sort()
        # How many lie below, first for just above the threshold, then for the threshold itself.
        below = [np.searchsorted(of_kind, highest_first, side) for side in ("right", "left")]
        shares = (len(of_kind) - np.stack(below, axis=1).ravel()) / len(of_kind)
        rates.append(np.concatenate([[0.0], shares, [1.0]]))
    # A first threshold of infinity would be exact, but JSON has no such number.
    inner = np.repeat(highest_first, 2).astype(np.float64).clip(0, 1)
    return np.concatenate([[1.0], inner, [0.0]]), rates[0], rates[1]


def _thin(x: Floats, y: Floats, most: int = _MOST_POINTS) -> Ints:
    """Return the points of a curve that keep its shape: both ends, then the farthest off it."""
    # Over the way gone, a curve is a function also where it is vertical.
    along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y)))])
    kept = np.array([0, len(x) - 1])
    while len(kept) < most:
        off = [np.abs(of - np.interp(along, along[kept], of[kept])) for of in (x, y)]
        distance = np.maximum(*off)
        farthest = distance.argmax()
        if distance[farthest] < 1e-9:
            break
        kept = np.sort(np.append(kept, farthest))
    return kept
