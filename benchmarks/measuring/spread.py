"""What repeated measurements say, and what they do not: differences within the noise.

The interval of a median goes from the least to the greatest measurement. Of five measurements it
has the true median with a probability of 94 % (1 - 2 / 2⁵), of three with 75 %. Two things differ
only if their intervals do not overlap; nothing follows from one measurement, as it has none.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

NOISE = "within the noise"


@dataclass(frozen=True)
class Spread:
    """The median of some measurements, and their range."""

    low: float
    median: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise measurements, of which there must be one."""
        return cls(min(values), statistics.median(values), max(values), len(values))

    def exceeds(self, other: Spread | float) -> bool:
        """Whether it is greater beyond the noise than another, or than a number."""
        if self.count < 2:
            return False
        if isinstance(other, Spread):
            return other.count > 1 and self.low > other.high
        return self.low > other

    def differs(self, other: Spread) -> bool:
        """Whether one of both is greater beyond the noise."""
        return self.exceeds(other) or other.exceeds(self)

    def range(self) -> str:
        """Return the interval as text."""
        return f"{self.low:,.0f} to {self.high:,.0f}"


def ratio(new: Spread, old: Spread) -> str:
    """Say how many times as large `new` is, or that it is not clear which is larger.

    >>> ratio(Spread(9, 10, 11, 3), Spread(4, 5, 6, 3))
    '2.00 x'
    >>> ratio(Spread(9, 10, 11, 3), Spread(8, 9, 10, 3))
    '1.11 x, within the noise'
    """
    factor = f"{new.median / old.median:.2f} x"
    return factor if new.differs(old) else f"{factor}, {NOISE}"
