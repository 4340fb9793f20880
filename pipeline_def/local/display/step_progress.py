"""How far a step is, by what it has reported: the time it still takes, and lines worth keeping."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

# Lines of a step that stay on the screen, at most.
_MOST_LINES = 20


class StepProgress:
    """The reports of one step.

    >>> now = iter([10.0, 20.0, 24.0])
    >>> step = StepProgress(clock=lambda: next(now))
    >>> step.report(1, 5)
    >>> step.report(2.5, 5)
    >>> f"{step.seconds_left():.1f}"
    '12.7'
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Measure time by `clock`, seconds."""
        self._clock = clock
        self._first = self._last = (0.0, 0.0)
        self._total = 0.0
        self._units = 0.0
        self._skipped = ""

    def report(self, done: float, total: float) -> None:
        """Note that `done` of `total` is finished, fractions included.

        Work that begins anew, as a second phase of a training, or is of another size, is timed
        anew.
        """
        now = (self._clock(), done)
        if total != self._total or done < self._last[1]:
            self._first, self._total = now, total
        self._last = now

    def seconds_left(self) -> float | None:
        """Estimate how long the rest takes; None before two reports, and if there is no rest.

        The pace is that since the first report. What comes before that is left out, as it happens
        once: a graph is traced, or a checkpoint is restored.
        """
        (began, at_first), (reported, done) = self._first, self._last
        if not at_first < done < self._total or reported <= began:
            return None
        rest = (self._total - done) * (reported - began) / (done - at_first)
        return max(0.0, rest - (self._clock() - reported))

    def keep(self, line: str, *, done: float, total: float) -> list[str]:
        """Return the lines to show for good, now that there is `line`: 20 in all, and the last.

        Args:
            line: of the report.
            done: units that are finished, a whole number.
            total: of them.
        """
        anew, self._units = done <= self._units, done
        lines = self.skipped() if anew else []
        every = math.ceil(total / _MOST_LINES)
        if done % every == 0 or done == total:
            self._skipped = ""
            return [*lines, line]
        self._skipped = line
        return lines

    def skipped(self) -> list[str]:
        """Return the last line if it was not shown, at the end of what may stop early."""
        lines, self._skipped = [self._skipped] if self._skipped else [], ""
        return lines
