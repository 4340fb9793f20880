"""Confidence intervals of proportions, and of the difference of two models on the same images."""

import math
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Half-width of the intervals, in standard errors of a normal distribution."""


@dataclass(frozen=True)
class Interval:
    """A 95% confidence interval."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def proportion_interval(hits: int, examples: int) -> Interval:
    """Return Wilson's interval of `hits` out of `examples`, at least one."""
    # SciPy takes a moment to import, and not every importer of this module needs it.
    from scipy import stats

    test = stats.binomtest(hits, examples)
    low, high = test.proportion_ci(CONFIDENCE, method="wilson")
    return Interval(float(low), float(high))


def paired_difference(more: int, less: int, examples: int) -> tuple[float, float]:
    """Return the difference of two accuracies on the same examples, and its standard error.

    `more` are the examples that only the first model is right about, `less` those of the second.

    Bonett and Price 2012, "Adjusted Wald Confidence Interval for a Difference of Binomial
    Proportions Based on Paired Data". It adds one disagreement in each direction, so the error is
    above 0 even if the models agree on every example.
    """
    pairs = examples + 2
    gained, lost = (more + 1) / pairs, (less + 1) / pairs
    difference = gained - lost
    return difference, math.sqrt((gained + lost - difference**2) / pairs)
