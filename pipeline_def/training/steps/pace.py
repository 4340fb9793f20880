"""How many steps run before Python looks at the result again."""

from __future__ import annotations

_SECONDS = 1.0
"""A call's length: progress still moves, and a call's overhead of a millisecond is nothing."""
_GROWTH = 10


class Pace:
    """Chooses the number of steps of each call; results do not depend on it."""

    def __init__(self, steps_per_call: int) -> None:
        """Take `steps_per_call` steps a call; 0: as many as take about a second."""
        self._fixed = steps_per_call
        self._steps = steps_per_call or 1
        self._calls = 0

    def steps(self, limit: int) -> int:
        """Return the number of steps of the next call, at most `limit`."""
        return min(self._steps, limit)

    def note(self, steps: int, seconds: float) -> None:
        """Learn how long a call of so many steps took."""
        self._calls += 1
        # The first call traces the graph, which says nothing about steps.
        if not self._fixed and self._calls > 1:
            fitting = int(steps * _SECONDS / max(seconds, 1e-6))
            self._steps = max(1, min(fitting, self._steps * _GROWTH))
