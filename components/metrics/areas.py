"""Areas under ROC curves."""

import numpy as np

from components.metrics.predictions import Floats, Ints, Scores, mean_known


def measure_areas(ids: Ints, probabilities: Scores) -> Floats:
    """Return the one-vs-rest ROC AUC of each class, [classes].

    Equal to scikit-learn's `roc_auc_score` of each column, which takes 30 times as long, too long
    for slices and resamples. NaN for a class without examples or without others, or with scores
    that are not finite.

    `ids` are the columns of the true classes, [examples], where -1 is none of them.
    """
    areas = np.full(probabilities.shape[1], np.nan)
    # Of many classes, a slice holds few.
    for column in np.unique(ids[ids >= 0]):
        scores = probabilities[:, column]
        positive = scores[ids == column]
        if len(positive) < len(ids) and np.isfinite(scores).all():
            areas[column] = _measure_area(np.sort(positive), np.sort(scores))
    return areas


def _measure_area(positive: Scores, everything: Scores) -> float:
    """Both arguments are in ascending order; `everything` includes `positive`."""
    below, up_to = (np.searchsorted(everything, positive, side) for side in ("left", "right"))
    own_below, own_up_to = (np.searchsorted(positive, positive, side) for side in ("left", "right"))
    # Of equal scores, half count as below.
    negatives_below = (below - own_below + up_to - own_up_to) / 2
    return float(negatives_below.mean() / (len(everything) - len(positive)))


def mean_auc(ids: Ints, probabilities: Scores) -> float:
    """Return the mean ROC AUC of the classes for which `measure_areas` is defined; else NaN.

    Equal to scikit-learn's `roc_auc_score` with "ovr" and "macro".
    """
    return mean_known(measure_areas(ids, probabilities))
