"""How sure a model is, and how often it is right then, in bins of confidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from components.evaluation.metrics.metric_counts import MetricCounts, divide
from components.evaluation.metrics.predictions import EDGES, Answers, Floats, Ints, Predictions

# Of fewer examples in a bin, accuracy says next to nothing.
_LEAST_IN_BIN, _MOST_BINS = 10, 10
# The smallest that float32 has at full precision; it has zeros, too.
_LEAST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Reliability:
    """Confidence of the model and how often it is right, in bins of confidence."""

    edges: Floats
    """[bins + 1], 0 to 1, never falling."""
    examples: Ints
    """[bins]."""
    confidence: Floats
    """[bins], mean; NaN for an empty bin."""
    accuracy: Floats
    """[bins], NaN for an empty bin."""


@dataclass(frozen=True)
class Scaling:
    """What temperature scaling has done to the answers that are judged."""

    temperature: float
    """By which the model divides its logits."""
    images: int
    """That it was fitted on."""
    ece: float
    """Expected calibration error without it, 0 to 1."""
    loss: float
    """Mean cross-entropy without it, nats."""


def undo_scaling(predictions: Predictions, *, temperature: float, images: int) -> Scaling:
    """Measure what the model would answer without its temperature.

    A power of the probabilities is proportional to what the softmax of the undivided logits is.
    """
    logs = np.log(predictions.probabilities.astype(np.float64).clip(_LEAST)) * temperature
    plain = np.exp(logs - logs.max(axis=1, keepdims=True))
    scalars = MetricCounts.of(Answers.of(predictions.ids, plain)).scalars()
    return Scaling(temperature, images, scalars["ece"], scalars["loss"])


def bin_by_width(counts: MetricCounts) -> Reliability:
    """Take the bins of equal width from which the calibration error is computed."""
    examples, confidence, right = counts.bins
    return Reliability(
        edges=EDGES.copy(),
        examples=examples.astype(np.int64),
        confidence=divide(confidence, examples),
        accuracy=divide(right, examples),
    )


def bin_by_count(answers: Answers) -> Reliability:
    """Divide examples into up to 10 bins of about as many each, at least 10.

    Bins of equal width have next to no examples where the model is rarely so sure, and their
    accuracy is noise. Examples of the same confidence stay together, so that there may be fewer
    bins; of probabilities that are no numbers there is none.
    """
    known = np.isfinite(answers.confidence)
    confidence, right = answers.confidence[known], answers.right[known]
    if not len(confidence):
        return Reliability(np.zeros(1), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    bins = int(np.clip(len(confidence) // _LEAST_IN_BIN, 1, _MOST_BINS))
    edges = np.unique(np.quantile(confidence, np.linspace(0, 1, bins + 1)))
    edges = edges if len(edges) > 1 else edges.repeat(2)
    places = edges[1:-1].searchsorted(confidence)
    examples = np.bincount(places, minlength=len(edges) - 1)
    sums = (np.bincount(places, of, len(examples)) for of in (confidence, right))
    means = (divide(of.astype(np.float64), examples.astype(np.float64)) for of in sums)
    return Reliability(edges, examples, *means)
