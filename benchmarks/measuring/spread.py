"""Median and range of repeated measurements, and whether two of them differ beyond the noise.

The range of five measurements contains the true median with a probability of 94 % (1 - 2 / 2⁵),
of three with 75 %. Two results differ only if their ranges do not overlap; one measurement has no
range and shows nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

NOISE = "within the noise"


@dataclass(frozen=True)
class Spread:
    """The median and range of some measurements."""

    low: float
    median: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarize at least one measurement."""
        return cls(min(values), statistics.median(values), max(values), len(values))

    def exceeds(self, other: Spread | float) -> bool:
        """Return whether it is greater than another spread or a number, beyond the noise."""
        if self.count < 2:
            return False
        if isinstance(other, Spread):
            return other.count > 1 and self.low > other.high
        return self.low > other

    def differs(self, other: Spread) -> bool:
        """Return whether the two differ beyond the noise."""
        return self.exceeds(other) or other.exceeds(self)

    def show(self, digits: int = 0) -> str:
        """Return the median and, of several measurements, their range as text."""
        middle, low, high = (f"{value:,.{digits}f}" for value in (self.median, self.low, self.high))
        return f"{middle} ({low} to {high})" if self.count > 1 else middle


def ratio(new: Spread, old: Spread) -> str:
    """Return how many times as large `new` is, with a note if it may be noise.

    >>> ratio(Spread(9, 10, 11, 3), Spread(4, 5, 6, 3))
    '2.00 x'
    >>> ratio(Spread(9, 10, 11, 3), Spread(8, 9, 10, 3))
    '1.11 x, within the noise'
    """
    factor = f"{new.median / old.median:.2f} x"
    return factor if new.differs(old) else f"{factor}, {NOISE}"
