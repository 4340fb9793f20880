"""What the model, and the one in use, answered to each example of the evaluated split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Scores = NDArray[np.floating[Any]]

EDGES = np.linspace(0, 1, 15 + 1)
"""Edges of the bins of confidence, as in Guo et al. 2017, "On Calibration of Modern Neural
Networks"."""

# Keras's, so that the loss is that of training: float32 has probabilities of exactly 0.
_LEAST_PROBABILITY = 1e-7

MOST_LOSS = -math.log(_LEAST_PROBABILITY)
"""Loss, in nats, of an example whose class the model gives no chance."""

# The rank of a class that the model does not rank.
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Answers:
    """What metrics need to know of a model's predictions, one entry per example."""

    classes: Ints
    """[seen], ascending: the columns that are right or most probable for any example, and -1."""
    truth: Ints
    """[examples], index into `classes`."""
    predicted: Ints
    """[examples], index into `classes`."""
    rank: Ints
    """[examples], how many classes the model ranks before the right one, if it ranks it at all."""
    bins: Ints
    """[examples], bin of the confidence, which lies in (lower edge, upper edge]."""
    confidence: Floats
    """[examples], probability of the most probable class, 0 to 1."""
    loss: Floats
    """[examples], nats."""

    @property
    def right(self) -> Flags:
        """Whether the most probable class is the right one, [examples]."""
        right: Flags = self.truth == self.predicted
        return right

    @classmethod
    def of(cls, ids: Ints, probabilities: Scores) -> Answers:
        """Compare probabilities [examples, classes] with the columns of the right answers.

        Args:
            ids: [examples], -1 for a label that the model does not know: the model is wrong about
                it, with the highest possible loss.
            probabilities: normalised here to a sum of 1 in each row.
        """
        examples = np.arange(len(ids))
        predicted = probabilities.argmax(axis=1)
        classes, places = np.unique(np.concatenate([ids, predicted]), return_inverse=True)
        sums = probabilities.sum(axis=1, dtype=np.float64)
        confidence = probabilities[examples, predicted] / sums
        of_truth = np.where(ids >= 0, probabilities[examples, ids] / sums, 0)
        return cls(
            classes=classes,
            truth=places[: len(ids)],
            predicted=places[len(ids) :],
            rank=_rank(ids, probabilities),
            bins=(EDGES.searchsorted(confidence) - 1).clip(0, len(EDGES) - 2),
            confidence=confidence,
            loss=-np.log(of_truth.clip(_LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)),
        )


def _rank(ids: Ints, probabilities: Scores) -> Ints:
    of_truth = probabilities[np.arange(len(ids)), ids][:, np.newaxis]
    later = np.arange(probabilities.shape[1]) >= ids[:, np.newaxis]
    # The right class itself is among these, unless it is unknown or its probability is NaN.
    behind = (probabilities < of_truth) | (probabilities == of_truth) & later
    count = np.where(ids >= 0, np.count_nonzero(behind, axis=1), 0)
    return np.where(count, probabilities.shape[1] - count, _NEVER)


@dataclass(frozen=True)
class Predictions:
    """A model's predictions, one row per example."""

    labels: tuple[str, ...]
    """The text of each column, in the model's order."""
    ids: Ints
    """[examples], the column of the right answer; -1 for a label that the model does not know."""
    probabilities: NDArray[np.float32]
    """[examples, classes], each row adds up to 1."""

    @cached_property
    def answers(self) -> Answers:
        """The predictions compared with the right answers, once."""
        return Answers.of(self.ids, self.probabilities)


@dataclass(frozen=True)
class Evaluated:
    """The examples of the evaluated split, in ascending order of their file names."""

    filenames: tuple[str, ...]
    slices: Mapping[str, tuple[str, ...]]
    """Slicing, such as "class" or "size" → the value of each example."""
    candidate: Predictions
    baseline: Predictions | None
