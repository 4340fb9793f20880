"""Confidence intervals of proportions."""

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


def widest(examples: int) -> float:
    """Return half the width of the interval of a proportion of 0.5, the widest one; at most 0.5."""
    return min(Z / 2 / math.sqrt(max(examples, 1)), 0.5)


def proportion_interval(hits: int, examples: int) -> Interval:
    """Return Wilson's interval of `hits` out of `examples`, at least one."""
    # SciPy takes a moment to import, and not every importer of this module needs it.
    from scipy import stats

    test = stats.binomtest(hits, examples)
    low, high = test.proportion_ci(CONFIDENCE, method="wilson")
    return Interval(float(low), float(high))
