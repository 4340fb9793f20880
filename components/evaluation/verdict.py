"""The verdict on a model: good enough, not good enough, or nothing that so few images can tell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from components.evaluation.metrics.intervals import Interval, Z

Outcome = Literal["blessed", "undecided", "refused"]

# More than these are no advice.
_MOST_IMAGES = 10_000_000


@dataclass(frozen=True)
class Verdict:
    """What the Evaluator has decided, and why."""

    outcome: Outcome
    """undecided: the measured values are good enough, but chance explains them as well."""
    headline: str
    """One sentence, for someone who reads nothing else."""
    reasons: list[str]
    """Each a clause in words: which bound decided, on which slice, by how much."""


@dataclass(frozen=True)
class Measured:
    """The accuracy of a model on the images that judge it, and how certain it is."""

    images: int
    accuracy: float
    interval: Interval
    majority_accuracy: float
    """Accuracy of always answering with the most frequent class."""
    change: float | None = None
    """Accuracy less that of the model in use, on the same images; None where none is in use."""
    change_interval: Interval | None = None
    disagreement: float = 0.0
    """Fraction of the images that one of both models is right about, and the other one not."""


def judge(
    measured: Measured, *, explained: tuple[str, ...], holds: bool, max_drop: float, strict: bool
) -> Verdict:
    """Decide whether a model may be used.

    Against the model in use this is a test of non-inferiority: the whole interval of the difference
    has to lie above the largest drop that is allowed (Piaggio et al. 2012, "Reporting of
    Noninferiority and Equivalence Randomized Trials").

    Args:
        measured: on the split that judges.
        explained: what thresholds decided, in words.
        holds: whether all thresholds hold for the measured values.
        max_drop: how far the accuracy may lie below that of the model in use, 0 to 1.
        strict: whether intervals have to hold as well as values.
    """
    doubts = _find_doubts(measured, max_drop)
    reasons = [*explained, *(doubt for _, doubt in doubts)]
    if not holds:
        return Verdict("refused", _refusal(measured), reasons)
    if doubts and strict:
        untold = " and ".join(short for short, _ in doubts)
        headline = f"Not blessed: {untold} cannot be told from {measured.images:,} images."
        return Verdict("undecided", headline, reasons)
    return Verdict("blessed", _blessing(measured, max_drop), reasons)


def refuse_broken(verdict: Verdict, broken: str) -> Verdict:
    """Return the verdict on a model that failed its smoke test, whatever its metrics are."""
    headline = "Not blessed: the exported model failed its smoke test."
    return Verdict("refused", headline, [broken, *verdict.reasons])


def _refusal(measured: Measured) -> str:
    if measured.accuracy < measured.majority_accuracy:
        return "Not blessed: worse than always answering with the most frequent class."
    if measured.change is not None:
        return "Not blessed: this model does not replace the one in use."
    return "Not blessed: this model misses a threshold."


def _blessing(measured: Measured, max_drop: float) -> str:
    change = measured.change_interval
    if change is None:
        better = measured.interval.low > measured.majority_accuracy
        than = "better than guessing" if better else "its measured values hold"
        return f"Blessed: {than}. There is no model in use to compare with."
    if change.low > 0:
        return "Blessed: better than the model in use, which it may replace."
    if change.low > -max_drop:
        return f"Blessed: at most {max_drop:g} behind the model in use, which it may replace."
    return "Blessed: its measured values hold, and it may replace the model in use."


def _find_doubts(measured: Measured, max_drop: float) -> list[tuple[str, str]]:
    """Return what the images cannot tell, in a few words and with its numbers."""
    found = []
    accuracy, low, guess = measured.accuracy, measured.interval.low, measured.majority_accuracy
    if low <= guess <= accuracy:
        spread = accuracy * (1 - accuracy)
        needed = say_images_needed(spread, accuracy - guess, measured.images)
        found.append(
            (
                "better than guessing",
                f"accuracy {accuracy:.3f} is {low:.3f} to {measured.interval.high:.3f} with 95 % "
                f"confidence, which includes {guess:.3f}, the majority-class accuracy{needed}",
            )
        )
    change, ends = measured.change, measured.change_interval
    if change is not None and ends is not None and ends.low <= -max_drop <= change:
        spread = measured.disagreement - change**2
        needed = say_images_needed(spread, change + max_drop, measured.images)
        found.append(
            (
                f"at most {max_drop:g} behind the model in use"
                if max_drop
                else "as good as the model in use",
                f"the difference to the model in use is {ends.low:+.3f} to {ends.high:+.3f} with "
                f"95 % confidence, which includes {-max_drop:+g}{needed}",
            )
        )
    return found


def say_images_needed(spread: float, distance: float, images: int) -> str:
    """Say how many images would tell, if a value stayed where it is; "" if nobody can say.

    Args:
        spread: variance of what one image says.
        distance: of the mean from the bound.
        images: that there are, and do not tell.
    """
    if distance <= 0 or spread <= 0:
        return ""
    needed = Z**2 * spread / distance**2
    if not images < needed < _MOST_IMAGES:
        return ""
    digits = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return f"; about {math.ceil(needed / digits) * digits:,} images would tell"
