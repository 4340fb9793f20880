"""Areas under curves from histograms, for more examples than have room in memory."""

import numpy as np

from components.evaluation.metrics.predictions import Floats, Ints, Scores, divide

# 16 bins for each octave of a probability up to a half, from the smallest normal float32 on, and of
# its distance from 1 above a half: of its bits, the exponent and 4 of the mantissa count.
_SHIFT = 19
_HALF = int(np.array(0.5, np.float32).view(np.int32)) >> _SHIFT
_BINS = 2 * (_HALF + 1)


def _find_bins(probabilities: Scores) -> Ints:
    scores = probabilities.astype(np.float32, copy=False)
    low, high = (of.view(np.int32) >> _SHIFT for of in (scores, np.float32(1) - scores))
    return np.where(scores <= 0.5, low, _BINS - 1 - high).clip(0, _BINS - 1).astype(np.int64)


class ScoreHistogram:
    """Histograms of the probabilities of each class, of its own examples and of all others."""

    def __init__(self, classes: int) -> None:
        """Start without examples."""
        self._counts = np.zeros((2, classes * _BINS), np.int64)
        self._classes, self._finite = classes, np.ones(classes, bool)

    def add(self, ids: Ints, probabilities: Scores) -> None:
        """Add examples; the arguments are those of `measure_areas`."""
        self._finite &= np.isfinite(probabilities).all(axis=0)
        bins = _find_bins(probabilities) + np.arange(self._classes) * _BINS
        known = np.flatnonzero(ids >= 0)
        own = np.bincount(bins[known, ids[known]], minlength=self._counts.shape[1])
        everything = np.bincount(bins.ravel(), minlength=self._counts.shape[1])
        self._counts += np.stack([own, everything - own])

    def measure_areas(self) -> tuple[Floats, Floats]:
        """Return about what `measure_areas` returns: scores in the same bin count as equal."""
        own, others = self._counts.reshape(2, self._classes, _BINS)
        total, rest = own.sum(axis=1), others.sum(axis=1)
        below = others.cumsum(axis=1) - others
        area = divide(((below + others / 2) * own).sum(axis=1), (total * rest).astype(np.float64))
        # From the highest bin on.
        hits, found = (of[:, ::-1].cumsum(axis=1)[:, ::-1] for of in (own, own + others))
        precision = divide((hits / np.maximum(found, 1) * own).sum(axis=1), total.astype(float))
        defined = self._finite & (total > 0) & (rest > 0)
        return np.where(defined, area, np.nan), np.where(defined, precision, np.nan)

    def measure_error(self) -> float:
        """Return the most by which an AUC of `measure_areas` may be wrong.

        Only pairs of scores in the same bin, each counted as half, may be in the wrong order.
        """
        own, others = self._counts.reshape(2, self._classes, _BINS)
        pairs = (own.sum(axis=1) * others.sum(axis=1)).astype(np.float64)
        unordered = (own * others).sum(axis=1) / 2
        return float(np.nan_to_num(divide(unordered, pairs)).max(initial=0.0))
