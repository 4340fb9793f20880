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
