"""What the images prove: how two models relate, and whether that is significant.

The verdict, the comparison of two runs, the report and the list of runs all use these words.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

from components.contract.confidence import Interval, Z
from components.metrics.intervals import paired_interval
from components.metrics.predictions import Flags

Relation = Literal["better", "worse", "not worse", "undecided"]
"""Of a second model to a first; not worse: by no more than the largest drop allowed."""

SIGNIFICANT = "Significant at 95 %."
"""Evidence that leaves no doubt: a model that is no better gets that far once in forty runs."""

# Nobody collects more than these.
_MOST_IMAGES = 10_000_000


@dataclass(frozen=True)
class AccuracyChange:
    """The accuracies of two models on the same images."""

    images: int
    before: float
    """Accuracy of the first model, 0 to 1."""
    after: float
    """Accuracy of the second."""
    interval: Interval
    """95% confidence interval of the difference, paired by image."""
    disagreement: float
    """Fraction of the images that exactly one of the two is right about."""

    @classmethod
    def of(cls, before: Flags, after: Flags) -> Self:
        """Compare two models, given whether each is right about the same examples, [examples]."""
        interval, differ = paired_interval(after, before), float((after != before).mean())
        return cls(len(after), float(before.mean()), float(after.mean()), interval, differ)

    @property
    def difference(self) -> float:
        """The second accuracy minus the first."""
        return self.after - self.before

    def is_within(self, max_drop: float) -> bool:
        """Say whether the second model is surely less than `max_drop` less accurate."""
        return self.interval.low > -max_drop

    def relate(self, max_drop: float) -> Relation:
        """Decide by the whole interval, never by the measured difference.

        Being at most `max_drop` less accurate is a test of non-inferiority (Piaggio et al. 2012,
        "Reporting of Noninferiority and Equivalence Randomized Trials").
        """
        if self.interval.low > 0:
            return "better"
        if self.interval.high < 0:
            return "worse"
        return "not worse" if self.is_within(max_drop) else "undecided"

    def tell(self, first: str, max_drop: float) -> str:
        """Say how the second model relates to `first`, as the rest of a sentence about it."""
        sign = math.copysign(1, self.difference)
        by = _points(sign * self.difference)
        low, high = sorted((sign * self.interval.low, sign * self.interval.high))
        by += f" point{'s' * (by != '1')} ({_points(low)} to {_points(high)})"
        return {
            "better": f"better than {first} by {by}",
            "worse": f"worse than {first} by {by}",
            "not worse": f"no worse than {first} (within {max_drop:g})",
            "undecided": f"{self.images:,} images are too few to compare it with {first}",
        }[self.relate(max_drop)]

    def explain(self, first: str, second: str, max_drop: float) -> str:
        """Return the numbers behind `tell`, as a clause."""
        low, high = self.interval.low, self.interval.high
        doubt = ""
        if self.relate(max_drop) == "undecided":
            distance = max(abs(self.difference), self.difference + max_drop)
            # At the bound, models disagree on at least that many images.
            spread = max(self.disagreement - self.difference**2, max_drop * (1 - max_drop))
            needed = estimate_images_needed(spread, distance, self.images)
            doubt = f", which includes 0: it may be due to chance{needed}"
        return (
            f"accuracy on the same images: {self.after:.3f} for {second}, {self.before:.3f} for "
            f"{first}; the difference is {self.difference:+.3f}, 95% confidence interval "
            f"{low:+.3f} to {high:+.3f}{doubt}"
        )


def weigh(claims: Iterable[tuple[float, Interval, float]], *, selected: str) -> str:
    """Return in a sentence how strong the evidence for the weakest of some claims is.

    Args:
        claims: each says that a value, with its interval, lies above a bound.
        selected: what the same images have picked, such as the checkpoint; "" if nothing. The best
            of many on the same images is partly luck, which no interval covers.
    """
    claims = [*claims]
    if any(value <= bound for value, _, bound in claims):
        return "No evidence of improvement."
    if selected:
        return f"Promising, but it could be chance: the same images picked {selected}."
    if all(interval.low > bound for _, interval, bound in claims):
        return SIGNIFICANT
    return "Promising, but it could be chance."


def percent(fraction: float) -> str:
    """Format a fraction without the sign, such as 97.9; only 1 is 100."""
    return f"{min(round(100 * fraction, 1), 100 if fraction == 1 else 99.9):g}"


def _points(difference: float) -> str:
    """Format a difference of fractions in percentage points."""
    return f"{round(100 * difference, 1 if abs(difference) >= 0.001 else 3):g}"


def estimate_images_needed(spread: float, distance: float, images: int) -> str:
    """Say how many images would decide if the value stayed the same; "" if that is unknown.

    `spread` is the variance of a single image, `distance` that of the mean from the bound.
    """
    if distance <= 0 or spread <= 0:
        return ""
    needed = Z**2 * spread / distance**2
    if not images < needed < _MOST_IMAGES:
        return ""
    digits = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return f"; about {math.ceil(needed / digits) * digits:,} images would be enough to decide"
