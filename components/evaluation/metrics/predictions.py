"""Predictions of a model, and of the model in use, for each example of the evaluated split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Scores = NDArray[np.floating[Any]]

EDGES = np.linspace(0, 1, 15 + 1)
"""Edges of the confidence bins, as in Guo et al. 2017, "On Calibration of Modern Neural
Networks"."""

# As in Keras, so that the loss is the training loss: float32 has probabilities of exactly 0.
_LEAST_PROBABILITY = 1e-7

MOST_LOSS = -math.log(_LEAST_PROBABILITY)
"""Loss, in nats, of an example whose class gets a probability of 0."""

# Rank of a class that the model does not rank.
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class PredictionStats:
    """Per-example statistics of a model's predictions, from which metrics are computed."""

    classes: int
    """Number of classes that the model knows."""
    truth: Ints
    """[examples], column of the true class; -1 for a label unknown to the model."""
    predicted: Ints
    """[examples], column of the predicted class."""
    rank: Ints
    """[examples], number of classes ranked before the true one."""
    bins: Ints
    """[examples], bin of the confidence, which lies in (lower edge, upper edge]."""
    confidence: Floats
    """[examples], probability of the predicted class, 0 to 1."""
    loss: Floats
    """[examples], nats."""

    @property
    def right(self) -> Flags:
        """Whether the predicted class is the true one, [examples]."""
        right: Flags = self.truth == self.predicted
        return right

    @classmethod
    def of(cls, ids: Ints, probabilities: Scores) -> PredictionStats:
        """Compare probabilities [examples, classes] with the columns of the true classes.

        Args:
            ids: [examples]; -1 for a label unknown to the model: always wrong, with the highest
                possible loss.
            probabilities: normalized here to a sum of 1 in each row.
        """
        examples = np.arange(len(ids))
        predicted = probabilities.argmax(axis=1)
        sums = probabilities.sum(axis=1, dtype=np.float64)
        confidence = probabilities[examples, predicted] / sums
        of_truth = np.where(ids >= 0, probabilities[examples, ids] / sums, 0)
        return cls(
            classes=probabilities.shape[1],
            truth=ids,
            predicted=predicted,
            rank=_rank(ids, probabilities),
            bins=(EDGES.searchsorted(confidence) - 1).clip(0, len(EDGES) - 2),
            confidence=confidence,
            loss=-np.log(of_truth.clip(_LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[PredictionStats]) -> PredictionStats:
        """Join the statistics of at least one set of examples, all of the same model."""
        arrays = {name: np.concatenate([vars(part)[name] for part in parts]) for name in _ARRAYS}
        return cls(classes=parts[0].classes, **arrays)

    def take(self, rows: Sequence[int]) -> PredictionStats:
        """Return the statistics of some of the examples."""
        return replace(self, **{name: vars(self)[name][rows] for name in _ARRAYS})


_ARRAYS = ("truth", "predicted", "rank", "bins", "confidence", "loss")


def _rank(ids: Ints, probabilities: Scores) -> Ints:
    of_truth = probabilities[np.arange(len(ids)), ids][:, np.newaxis]
    later = np.arange(probabilities.shape[1]) >= ids[:, np.newaxis]
    # Includes the true class itself, unless it is unknown or its probability is NaN.
    behind = (probabilities < of_truth) | (probabilities == of_truth) & later
    count = np.where(ids >= 0, np.count_nonzero(behind, axis=1), 0)
    return np.where(count, probabilities.shape[1] - count, _NEVER)


@dataclass(frozen=True)
class Predictions:
    """A model's predictions, one row per example."""

    labels: tuple[str, ...]
    """Label of each column, in the model's order."""
    ids: Ints
    """[examples], column of the true class; -1 for a label unknown to the model."""
    probabilities: NDArray[np.float32]
    """[examples, classes], each row adds up to 1."""

    @cached_property
    def stats(self) -> PredictionStats:
        """Statistics of each example, computed once."""
        return PredictionStats.of(self.ids, self.probabilities)


@dataclass(frozen=True)
class Evaluated:
    """The examples of the evaluated split, in ascending order of their file names."""

    filenames: tuple[str, ...]
    slices: Mapping[str, tuple[str, ...]]
    """Slicing, such as "class" or "size" → value of each example."""
    candidate: Predictions
    baseline: Predictions | None = None
