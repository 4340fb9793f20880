"""What the model, and the one in use, say of each example of the evaluated split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Predictions:
    """A model's answers, one row per example."""

    labels: tuple[str, ...]
    """The text of each column, in the model's order."""
    ids: Ints
    """[examples], the column of the right answer; -1 for a label that the model does not know."""
    probabilities: NDArray[np.float32]
    """[examples, classes], each row adds up to 1."""


@dataclass(frozen=True)
class Evaluated:
    """The examples of the evaluated split, in ascending order of their file names."""

    filenames: tuple[str, ...]
    slices: Mapping[str, tuple[str, ...]]
    """Slicing, such as "class" or "size" → the value of each example."""
    candidate: Predictions
    baseline: Predictions | None
