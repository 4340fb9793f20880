"""How often a model's output `known` calls an image unknown that is like those of training."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from components.contract.confidence import Interval, proportion_interval

Scores = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Unknowns:
    """The threshold of `known`, and what it amounts to."""

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
