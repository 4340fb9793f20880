"""The ROC curve, and the areas under ROC and precision-recall curves."""

from dataclasses import dataclass

import numpy as np

from components.metrics.predictions import (
    Flags,
    Floats,
    Ints,
    Predictions,
    Scores,
    mean_known,
)

_MOST_POINTS = 100
# Scores of all classes that scikit-learn sorts at once for a micro-average; it takes a second.
_MOST_SCORES = 4_000_000


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


def measure_areas(ids: Ints, probabilities: Scores) -> tuple[Floats, Floats]:
    """Return the one-vs-rest ROC AUC and average precision of each class, [classes] each.

    Equal to scikit-learn's `roc_auc_score` and `average_precision_score` of each column, which
    take 30 times as long, too long for slices and resamples. NaN for a class without examples or
    without others, or with scores that are not finite.

    `ids` are the columns of the true classes, [examples], where -1 is none of them.
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

    The micro-average is of a random sample of the examples if there are too many scores. None if
    all examples are of one class, or probabilities are not finite.
    """
    labels, ids, probabilities = predictions.labels, predictions.ids, predictions.probabilities
    if len(np.unique(ids)) < 2:
        return None
    if len(labels) == 2:
        column = labels.index(max(labels))
        return _trace(ids == column, probabilities[:, column], positive=labels[column])
    most = max(1, _MOST_SCORES // len(labels))
    if len(ids) > most:
        rows = np.sort(np.random.default_rng(0).choice(len(ids), most, replace=False))
        ids, probabilities = ids[rows], probabilities[rows]
    truth = ids[:, np.newaxis] == np.arange(len(labels))
    return _trace(truth.ravel(), probabilities.ravel(), positive=None)


def _trace(truth: Flags, scores: Scores, *, positive: str | None) -> Roc | None:
    if truth.all() or not truth.any() or not np.isfinite(scores).all():
        return None
    from sklearn import metrics  # With SciPy, in half a second.

    false_positive_rate, recall, thresholds = metrics.roc_curve(truth, scores)
    kept = _thin(false_positive_rate, recall)
    return Roc(
        false_positive_rate[kept],
        recall[kept],
        # A first threshold of infinity would be exact, but JSON cannot hold it.
        thresholds[kept].astype(np.float64).clip(0, 1),
        area=float(metrics.auc(false_positive_rate, recall)),
        positive=positive,
    )


def _thin(x: Floats, y: Floats) -> Ints:
    """Return points at equal distances along a curve, both ends among them."""
    along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y)))])
    kept: Ints = np.unique(np.searchsorted(along, np.linspace(0, along[-1], _MOST_POINTS)))
    return kept
