"""Metrics of scores: areas under ROC curves, calibration, and false alarms of `known`."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from components.contract.confidence import Interval, proportion_interval
from components.metrics.predictions import EDGES, Counts, Floats, Ints, Scores, divide, mean_known


def measure_areas(ids: Ints, probabilities: Scores) -> Floats:
    """Return the one-vs-rest ROC AUC of each class, [classes].

    Equal to scikit-learn's `roc_auc_score` of each column, which takes 30 times as long, too long
    for slices and resamples. NaN for a class without examples or without others, or with scores
    that are not finite.

    `ids` are the columns of the true classes, [examples], where -1 is none of them.
    """
    # SciPy takes a moment to import, and not every importer of this module needs it.
    from scipy.stats import rankdata

    areas = np.full(probabilities.shape[1], np.nan)
    # Of many classes, a slice holds few.
    for column in np.unique(ids[ids >= 0]):
        scores, positive = probabilities[:, column], ids == column
        count = np.count_nonzero(positive)
        if count < len(ids) and np.isfinite(scores).all():
            # The statistic of Mann and Whitney; equal scores share a rank.
            above = rankdata(scores)[positive].sum() - count * (count + 1) / 2
            areas[column] = above / (count * (len(ids) - count))
    return areas


def mean_auc(ids: Ints, probabilities: Scores) -> float:
    """Return the mean ROC AUC of the classes for which `measure_areas` is defined; else NaN.

    Equal to scikit-learn's `roc_auc_score` with "ovr" and "macro".
    """
    return mean_known(measure_areas(ids, probabilities))


class ConfidenceBin(NamedTuple):
    """Images with about the same confidence."""

    low: float
    high: float
    examples: int
    confidence: float
    """Mean; NaN without examples, as the accuracy."""
    accuracy: float


Bins = tuple[ConfidenceBin, ...]
"""A reliability diagram: bins from low to high confidence."""


@dataclass(frozen=True)
class Unknowns:
    """The threshold of the output `known`, and how often it calls a usual image unknown."""

    wanted: float
    """Rate of false alarms, 0 to 1, for which it was fitted."""
    images: int
    """Number of images it was fitted on."""
    threshold: float | None
    """Least score of a known image; None if there were too few images."""
    found: float | None = None
    """Rate of false alarms on the evaluated images; None if they are those of the fit."""
    interval: Interval | None = None

    def measure(self, known_scores: Scores | None, *, held_out: bool) -> Self:
        """Add the false alarms on evaluated images, unless the threshold was fitted on them.

        Scores of images that the model has seen are NaN.
        """
        if self.threshold is None or known_scores is None or not held_out:
            return self
        known_scores = known_scores[np.isfinite(known_scores)]
        if not len(known_scores):
            return self
        alarms = int((known_scores < np.float32(self.threshold)).sum())
        examples = len(known_scores)
        interval = proportion_interval(alarms, examples)
        return replace(self, found=alarms / examples, interval=interval)


def bin_by_width(counts: Counts) -> Bins:
    """Return the bins of equal width that define the expected calibration error."""
    examples, confidence, right = counts.bins
    means = divide(confidence, examples), divide(right, examples)
    columns = (EDGES[:-1], EDGES[1:], examples.astype(np.int64), *means)
    return tuple(
        ConfidenceBin(*row) for row in zip(*(column.tolist() for column in columns), strict=True)
    )
