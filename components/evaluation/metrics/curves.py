"""ROC and precision-recall curves, and the areas under them."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn import metrics

from components.evaluation.metrics.predictions import (
    Flags,
    Floats,
    Ints,
    Predictions,
    Scores,
    mean_known,
)

_MOST_POINTS, _MOST_CURVES = 100, 6
# Shown as 1.000.
_PERFECT = 0.9995
# Scores of all classes that are sorted at once: 32 MB.
_BLOCK = 8_000_000

_Part = tuple[Flags, Scores]
"""Whether each of some scores is of the positive class, and the scores, [...] each."""


@dataclass(frozen=True)
class Roc:
    """A ROC curve from (0, 0) to (1, 1), thinned to its shape."""

    false_positive_rate: Floats
    """[points], never falling."""
    recall: Floats
    """[points], never falling."""
    thresholds: Floats
    """[points], 0 to 1, never rising."""
    area: float
    """Area under the curve before thinning."""
    positive: str | None
    """The positive label; None for the one-vs-rest micro-average."""


@dataclass(frozen=True)
class PrecisionRecall:
    """A one-vs-rest precision-recall curve, thinned to its shape."""

    recall: Floats
    """[points], never rising, as in scikit-learn."""
    precision: Floats
    """[points]."""
    average: float
    """Average precision before thinning."""


@dataclass(frozen=True)
class ClassCurves:
    """The one-vs-rest curves of a class."""

    label: str
    roc: Roc
    precision_recall: PrecisionRecall


def measure_areas(ids: Ints, probabilities: Scores) -> tuple[Floats, Floats]:
    """Return the one-vs-rest ROC AUC and average precision of each class, [classes] each.

    Equal to scikit-learn's `roc_auc_score` and `average_precision_score` of each column, which
    take minutes for 50,000 examples and 1,000 classes.

    Args:
        ids: [examples], column of the true class; -1 is none of them.
        probabilities: [examples, classes].

    Returns:
        NaN for a class without examples or without others, or with scores that are not finite.
    """
    areas = np.full((probabilities.shape[1], 2), np.nan)
    # Of many classes, a slice holds few.
    for column in np.unique(ids[ids >= 0]):
        scores = probabilities[:, column]
        positive = scores[ids == column]
        if len(positive) < len(ids) and np.isfinite(scores).all():
            areas[column] = _measure_areas(np.sort(positive), np.sort(scores))
    return areas[:, 0], areas[:, 1]


def _measure_areas(positive: Scores, everything: Scores) -> tuple[float, float]:
    """Both arguments are in ascending order; `everything` includes `positive`."""
    below, up_to = (np.searchsorted(everything, positive, side) for side in ("left", "right"))
    own_below, own_up_to = (np.searchsorted(positive, positive, side) for side in ("left", "right"))
    # Of equal scores, half count as below.
    negatives_below = (below - own_below + up_to - own_up_to) / 2
    precision = (len(positive) - own_below) / (len(everything) - below)
    area = negatives_below.mean() / (len(everything) - len(positive))
    return float(area), float(precision.mean())


def mean_auc(ids: Ints, probabilities: Scores) -> float:
    """Return the mean ROC AUC of the classes for which `measure_areas` is defined; else NaN.

    Equal to scikit-learn's `roc_auc_score` with "ovr" and "macro".
    """
    return mean_known(measure_areas(ids, probabilities)[0])


def trace_roc(predictions: Predictions) -> Roc | None:
    """Return the ROC curve of the second of two classes, or the micro-average of more classes.

    None if all examples are of one class, or probabilities are not finite.
    """
    labels, ids, probabilities = predictions.labels, predictions.ids, predictions.probabilities
    if len(np.unique(ids)) < 2:
        return None
    if len(labels) == 2:
        column = labels.index(max(labels))
        of_column = ids == column, probabilities[:, column]
        return _trace(lambda: [of_column], positive=labels[column])
    step = max(1, _BLOCK // len(labels))

    def parts() -> Iterator[_Part]:
        for start in range(0, len(ids), step):
            rows = slice(start, start + step)
            yield ids[rows, np.newaxis] == np.arange(len(labels)), probabilities[rows]

    return _trace(parts, positive=None)


def _trace(parts: Callable[[], Iterable[_Part]], *, positive: str | None) -> Roc | None:
    facts = [(truth.any(), truth.all(), np.isfinite(scores).all()) for truth, scores in parts()]
    some, every, finite = zip(*facts, strict=True)
    if all(every) or not any(some) or not all(finite):
        return None
    thresholds, false_positive_rate, recall = _find_corners(parts)
    kept = _thin(false_positive_rate, recall)
    return Roc(
        false_positive_rate[kept],
        recall[kept],
        thresholds[kept],
        area=float(metrics.auc(false_positive_rate, recall)),
        positive=positive,
    )


def trace_class(predictions: Predictions, label: str) -> ClassCurves | None:
    """Return the one-vs-rest curves of a class; None where `measure_areas` gives NaN."""
    column = predictions.labels.index(label)
    truth, scores = predictions.ids == column, predictions.probabilities[:, column]
    roc = _trace(lambda: [(truth, scores)], positive=label)
    if not roc:
        return None
    precision, recall, _ = metrics.precision_recall_curve(truth, scores)
    kept = _thin(recall, precision)
    average = float(-(np.diff(recall) * precision[:-1]).sum())
    return ClassCurves(label, roc, PrecisionRecall(recall[kept], precision[kept], average))


def trace_worst(
    predictions: Predictions, labels: Sequence[str], *, auc: Floats, precision: Floats
) -> tuple[ClassCurves, ...]:
    """Return the curves of the 6 classes with the smallest areas, the smallest first.

    Perfectly separated classes are left out: their curves show nothing. Of two classes, the curves
    of the second suffice. The areas are in the order of `labels`, which is ascending.
    """
    perfect = np.minimum(auc, precision) >= _PERFECT
    worst = [labels[row] for row in np.argsort(auc, kind="stable") if not perfect[row]]
    if len(labels) == 2:
        worst = [label for label in worst if label == labels[1]]
    traced = (trace_class(predictions, label) for label in worst)
    return tuple(itertools.islice(filter(None, traced), _MOST_CURVES))


def _find_corners(parts: Callable[[], Iterable[_Part]]) -> tuple[Floats, Floats, Floats]:
    """Return threshold, false positive rate and recall, [points] each.

    scikit-learn's `roc_curve` gives the same curve, but takes a minute for 50,000 examples and
    1,000 classes.
    """
    highest_first = np.unique(np.concatenate([scores[truth] for truth, scores in parts()]))[::-1]
    total, below = np.zeros((2, 1), np.int64), np.zeros((2, 2 * len(highest_first)), np.int64)
    for truth, scores in parts():
        for kind, chosen in enumerate((~truth, truth)):
            of_kind = np.sort(scores[chosen])
            # Scores below: first of just above the threshold, then of the threshold itself.
            found = [np.searchsorted(of_kind, highest_first, side) for side in ("right", "left")]
            below[kind] += np.stack(found, axis=1).ravel()
            total[kind] += len(of_kind)
    rates = np.pad((total - below) / total, ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))
    # A first threshold of infinity would be exact, but JSON cannot hold it.
    inner = np.repeat(highest_first, 2).astype(np.float64).clip(0, 1)
    return np.concatenate([[1.0], inner, [0.0]]), rates[0], rates[1]


def _thin(x: Floats, y: Floats, most: int = _MOST_POINTS) -> Ints:
    """Return the points that keep the shape of a curve: both ends, then the farthest off it."""
    # A vertical stretch is a function of the arc length, too.
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
