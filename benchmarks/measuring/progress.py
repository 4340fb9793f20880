"""How far a benchmark has come, and how long the rest will take."""

from __future__ import annotations

import sys
import time

_MINUTE = 60
# Below this, minutes are too coarse.
_IN_SECONDS = 100


def say(text: str) -> None:
    """Print a line to stderr; results go to stdout."""
    print(text, file=sys.stderr, flush=True)


def spell(seconds: float) -> str:
    """Return a rough duration in words.

    >>> spell(0.3), spell(47), spell(190), spell(5400)
    ('about 1 s', 'about 50 s', 'about 3 min', 'about 90 min')
    """
    if seconds < _IN_SECONDS:
        rounded = round(seconds, -1) if seconds > 10 else max(1, round(seconds))
        return f"about {rounded:.0f} s"
    return f"about {seconds / _MINUTE:.0f} min"


class Progress:
    """Counts measurements and estimates the time left."""

    def __init__(self, measurements: int) -> None:
        """Start the clock."""
        self._all, self._done = measurements, 0
        self._started = time.perf_counter()

    def report(self, what: str) -> None:
        """Report that a measurement is done, with its result."""
        self._done += 1
        each = (time.perf_counter() - self._started) / self._done
        left = (
            spell(each * (self._all - self._done)) + " left" if self._done < self._all else "done"
        )
        say(f"[{self._done}/{self._all}] {what}; {left}")
