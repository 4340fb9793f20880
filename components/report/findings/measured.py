"""What advice has brought on images like those of a run, as `benchmarks.advice` measured it."""

import functools
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from components.contract.rules_of_thumb import SMALL_SIDE

GAINS_FILE = Path(__file__).with_name("measured.json")

# Sets are alike if one has at most this many times as many training images as the other.
_ALIKE = 4


class Gain(NamedTuple):
    """What an option changed on a data set."""

    data: str
    """What its images are."""
    images: int
    """Training images."""
    side: int
    """Of the images that the model saw, pixels."""
    options: str
    gain: float
    """Mean difference of accuracy to the run without the options."""
    low: float
    """Of its 95% confidence interval."""
    high: float
    seeds: int

    @property
    def text(self) -> str:
        """The gain as a clause."""
        if self.low <= 0 <= self.high:
            change = f"no proven change of accuracy ({self.low:+.3f} to {self.high:+.3f})"
        else:
            change = f"{self.gain:+.3f} accuracy ({self.low:+.3f} to {self.high:+.3f})"
        return f"measured on {self.images:,} {self.data}, {self.seeds} seeds: {change}"


@functools.cache
def read_gains() -> tuple[Gain, ...]:
    """Read all measured gains."""
    return tuple(Gain(**of) for of in json.loads(GAINS_FILE.read_text(encoding="utf-8")))


def find_gain(options: str, *, images: int, side: int) -> Gain | None:
    """Return what options brought on the most similar data; None without similar data."""
    alike = [
        gain
        for gain in read_gains()
        if _name(gain.options) == _name(options)
        and (gain.side <= SMALL_SIDE) == (side <= SMALL_SIDE)
        and abs(math.log(gain.images / max(1, images))) <= math.log(_ALIKE)
    ]
    return min(alike, key=lambda of: abs(math.log(of.images / max(1, images))), default=None)


def choose_first(advised: Iterable[str], *, images: int, side: int) -> tuple[str, Gain | None]:
    """Choose the options to try first: proven gains come first, proven losses are left out."""
    known = [(options, find_gain(options, images=images, side=side)) for options in advised]
    useful = [(options, of) for options, of in known if of is None or of.high >= 0]
    proven = [(options, of) for options, of in useful if of and of.low > 0]
    best = sorted(proven, key=lambda one: -one[1].gain)
    return next(iter((*best, *useful)), ("", None))


def _name(options: str) -> list[str]:
    """Return the words of options, without numbers."""
    return [word for word in options.split() if not word.replace(".", "").isdigit()]
