"""What the images prove: how two models relate, and how good a model has been shown to be.

The verdict, the comparison of two runs, the report and the list of runs all use these words.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from components.contract.confidence import Interval, Z
from components.metrics.intervals import paired_interval
from components.metrics.predictions import Flags

Relation = Literal["better", "worse", "not worse", "undecided"]
"""Of a second model to a first; not worse: by no more than the largest drop allowed."""

Grade = Literal["proven", "promising", "not shown"]

_MEANINGS: Mapping[str, str] = {
    "proven": "Proven: the whole 95% confidence interval supports it.",
    "promising": "Promising: chance, or images that also selected the weights, may explain it.",
    "not shown": "Not shown: what was measured is no better.",
}

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

    def tell(self, first: str, second: str, max_drop: float) -> str:
        """Say as a clause how `second` relates to `first`."""
        within = f", by at most {max_drop:g}" if self.is_within(max_drop) else ""
        return {
            "better": f"{second} is better than {first}",
            "worse": f"{second} is worse than {first}{within}",
            "not worse": f"{second} is at most {max_drop:g} less accurate than {first}",
            "undecided": f"{self.images:,} images are too few to tell which of {second} "
            f"and {first} is better",
        }[self.relate(max_drop)]

    def explain(self, first: str, second: str, max_drop: float) -> str:
        """Return the numbers behind `tell`, as a clause."""
        low, high = self.interval.low, self.interval.high
        doubt = ""
        if self.relate(max_drop) == "undecided":
            distance = max(abs(self.difference), self.difference + max_drop)
            spread = self.disagreement - self.difference**2
            needed = estimate_images_needed(spread, distance, self.images)
            doubt = f", which includes 0: it may be due to chance{needed}"
        return (
            f"accuracy on the same images: {self.after:.3f} for {second}, {self.before:.3f} for "
            f"{first}; the difference is {self.difference:+.3f}, 95% confidence interval "
            f"{low:+.3f} to {high:+.3f}{doubt}"
        )


def grade(value: float, interval: Interval, bound: float, *, selected: bool) -> Grade:
    """Grade the claim that an accuracy, or a difference of two, lies above `bound`.

    Proven: the whole 95% interval lies above; a model at the bound gets that far once in forty
    evaluations. Promising: the value lies above, the interval does not. Images that selected the
    weights (`selected`) prove nothing, however many: the best of many epochs on them is partly
    luck, which their interval does not cover.
    """
    if value <= bound:
        return "not shown"
    return "promising" if selected or interval.low <= bound else "proven"


def weakest(grades: Iterable[Grade]) -> Grade:
    """Return the weakest of some grades."""
    return max(grades, key=[*_MEANINGS].index)


def explain_grade(found: str) -> str:
    """Return a sentence about a grade; "" for "", the grade of runs by earlier versions."""
    return _MEANINGS.get(found, "")


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
