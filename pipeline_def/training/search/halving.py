"""How many trials fit into a time, and how far each is trained.

Successive halving (Jamieson and Talwalkar, 2016): all trials run for a ninth of their epochs, the
best third of them for a third, the best ninth to the end. A trial that goes on resumes from its
checkpoint.
"""

import math

# Fraction of its epochs after which a trial is compared with the others.
RUNGS = (1 / 9, 1 / 3, 1.0)
_KEPT = 3
_MOST_TRIALS = 60
# An average trial takes so many times as long as the training that the recipe chooses.
LONGER = 1.5


def count_trials(
    seconds: float, *, one: float, start_up: float = 0.0, rungs: tuple[float, ...] = RUNGS
) -> int:
    """Return how many trials fit; 0 if not one of them does.

    Args:
        seconds: left for the search.
        one: duration of the training that the recipe chooses, seconds.
        start_up: seconds of it that every run of a trial takes again.
        rungs: increasing fractions that end with 1.

    >>> count_trials(600, one=100), count_trials(100, one=100)
    (12, 0)
    """

    def cost(trials: int) -> float:
        total, before = 0.0, 0.0
        for rung in rungs:
            total += trials * (start_up + LONGER * (one - start_up) * (rung - before))
            trials, before = count_promoted(trials), rung
        return total

    return next((n for n in range(_MOST_TRIALS, 0, -1) if cost(n) <= seconds), 0)


def count_promoted(trials: int) -> int:
    """Return how many of the trials go on to the next rung."""
    return math.ceil(trials / _KEPT)


def epochs_at(rung: float, epochs: int) -> int:
    """Return the epochs of a trial at a rung, at least 1."""
    return max(1, round(rung * epochs))
