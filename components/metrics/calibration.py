"""Calibration: confidence against accuracy, a temperature, false alarms of `known`."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from components.contract.confidence import Interval, proportion_interval
from components.metrics.predictions import (
    EDGES,
    Counts,
    Floats,
    Predictions,
    PredictionStats,
    Scores,
    divide,
)

# With fewer examples in a bin, its accuracy is mostly noise.
_LEAST_IN_BIN, _MOST_BINS = 10, 10
# The smallest number that float32 holds at full precision; probabilities may be 0.
_LEAST = float(np.finfo(np.float32).tiny)


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
class Scaling:
    """Effect of temperature scaling on the evaluated predictions."""

    temperature: float
    """The model divides its logits by it."""
    images: int
    """Number of images it was fitted on."""
    ece: float
    """Expected calibration error without it, 0 to 1."""
    loss: float
    """Mean cross-entropy without it, nats."""


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
        """Add the false alarms on evaluated images, unless the threshold was fitted on them."""
        if self.threshold is None or known_scores is None or not held_out or not len(known_scores):
            return self
        alarms = int((known_scores < np.float32(self.threshold)).sum())
        examples = len(known_scores)
        interval = proportion_interval(alarms, examples)
        return replace(self, found=alarms / examples, interval=interval)


def undo_scaling(predictions: Predictions, *, temperature: float, images: int) -> Scaling:
    """Measure what the model would predict without its temperature.

    The softmax of the undivided logits is proportional to a power of the probabilities.
    """
    logs = np.log(predictions.probabilities.astype(np.float64).clip(_LEAST)) * temperature
    plain = np.exp(logs - logs.max(axis=1, keepdims=True))
    scalars = Counts.of(PredictionStats.of(predictions.ids, plain)).scalars()
    return Scaling(temperature, images, scalars["ece"], scalars["loss"])


def bin_by_width(counts: Counts) -> Bins:
    """Return the bins of equal width that define the expected calibration error."""
    return _make_bins(EDGES, counts.bins)


def bin_by_count(stats: PredictionStats) -> Bins:
    """Divide the examples into up to 10 bins of about equal size, at least 10 examples each.

    Bins of equal width would hold next to no examples where the model is rarely that confident.
    Examples of the same confidence stay together, so there may be fewer bins. NaN is left out.
    """
    known = np.isfinite(stats.confidence)
    confidence, right = stats.confidence[known], stats.right[known]
    if not len(confidence):
        return ()
    bins = int(np.clip(len(confidence) // _LEAST_IN_BIN, 1, _MOST_BINS))
    edges = np.unique(np.quantile(confidence, np.linspace(0, 1, bins + 1)))
    edges = edges if len(edges) > 1 else edges.repeat(2)
    columns = edges[1:-1].searchsorted(confidence)
    weights = np.ones(len(right)), confidence, right
    sums = np.stack([np.bincount(columns, weight, len(edges) - 1) for weight in weights])
    return _make_bins(edges, sums.astype(np.float64))


def _make_bins(edges: Floats, sums: Floats) -> Bins:
    """Make bins from their edges, [bins + 1], and sums, [3, bins] as in `Counts.bins`."""
    examples, confidence, right = sums
    means = divide(confidence, examples), divide(right, examples)
    columns = (edges[:-1], edges[1:], examples.astype(np.int64), *means)
    return tuple(
        ConfidenceBin(*row) for row in zip(*(column.tolist() for column in columns), strict=True)
    )
