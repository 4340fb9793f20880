from __future__ import annotations

import numpy as np
import pytest

from components.evaluation.metrics.intervals import Interval, paired_interval, wilson_interval
from components.evaluation.verdict import Measured, Verdict, judge


def measured(
    images: int, right: int, *, guess: float, gained: int | None = None, lost: int = 0
) -> Measured:
    """Of a model that is right about the first images.

    Args:
        images: number of them.
        right: so many of them.
        guess: accuracy of the majority class.
        gained: images that it is right about and the model in use is not; None: none is in use.
        lost: the reverse.
    """
    hits = np.arange(images) < right
    of = Measured(images, right / images, wilson_interval(hits), guess)
    if gained is None:
        return of
    before = hits.copy()
    before[:gained] = False
    before[right : right + lost] = True
    return Measured(
        *(of.images, of.accuracy, of.interval, of.majority_accuracy),
        change=(gained - lost) / images,
        change_interval=paired_interval(hits, before),
        disagreement=(gained + lost) / images,
    )


def verdict(
    of: Measured, *, holds: bool = True, strict: bool = True, drop: float = 0.02
) -> Verdict:
    return judge(of, explained=("why",), holds=holds, max_drop=drop, strict=strict)


@pytest.mark.parametrize(
    ("of", "outcome", "headline"),
    [
        pytest.param(
            measured(209, 23, guess=0.077),
            "undecided",
            "Not blessed: better than guessing cannot be told from 209 images.",
            id="twenty nonsense classes",
        ),
        pytest.param(
            measured(209, 60, guess=0.077),
            "blessed",
            "Blessed: better than guessing. There is no model in use to compare with.",
            id="a first model that has learned something",
        ),
        pytest.param(
            measured(100, 50, guess=0.5),
            "undecided",
            "Not blessed: better than guessing cannot be told from 100 images.",
            id="one that always gives the same answer",
        ),
        pytest.param(
            measured(1000, 900, guess=0.1, gained=60, lost=20),
            "blessed",
            "Blessed: better than the model in use, which it may replace.",
            id="better",
        ),
        pytest.param(
            measured(1000, 900, guess=0.1, gained=20, lost=22),
            "blessed",
            "Blessed: at most 0.02 behind the model in use, which it may replace.",
            id="as good",
        ),
        pytest.param(
            measured(167, 167, guess=0.1, gained=0, lost=0),
            "blessed",
            "Blessed: at most 0.02 behind the model in use, which it may replace.",
            id="the same answers",
        ),
        pytest.param(
            measured(150, 120, guess=0.1, gained=8, lost=8),
            "undecided",
            "Not blessed: at most 0.02 behind the model in use cannot be told from 150 images.",
            id="too few images to tell",
        ),
        pytest.param(
            measured(20, 9, guess=0.4, gained=2, lost=2),
            "undecided",
            "Not blessed: better than guessing and at most 0.02 behind the model in use cannot be "
            "told from 20 images.",
            id="both",
        ),
    ],
)
def test_intervals_decide(of: Measured, outcome: str, headline: str) -> None:
    found = verdict(of)
    assert (found.outcome, found.headline) == (outcome, headline)
    assert found.reasons[0] == "why"
    assert (len(found.reasons) > 1) == (outcome == "undecided")


@pytest.mark.parametrize(
    ("of", "headline"),
    [
        (
            measured(100, 40, guess=0.5),
            "Not blessed: worse than always answering with the most frequent class.",
        ),
        (measured(100, 80, guess=0.5), "Not blessed: this model misses a threshold."),
        (
            measured(100, 80, guess=0.5, gained=0, lost=9),
            "Not blessed: this model does not replace the one in use.",
        ),
    ],
)
def test_a_threshold_that_is_missed_decides_first(of: Measured, headline: str) -> None:
    found = verdict(of, holds=False)
    assert (found.outcome, found.headline) == ("refused", headline)


@pytest.mark.parametrize(
    ("of", "headline"),
    [
        (
            measured(209, 23, guess=0.077),
            "Blessed: its measured values hold. There is no model in use to compare with.",
        ),
        (
            measured(150, 120, guess=0.1, gained=8, lost=8),
            "Blessed: its measured values hold, and it may replace the model in use.",
        ),
    ],
)
def test_measured_values_decide_where_that_is_asked_for(of: Measured, headline: str) -> None:
    found = verdict(of, strict=False)
    assert (found.outcome, found.headline) == ("blessed", headline)
    # The doubt is told all the same.
    assert "with 95 % confidence, which includes" in found.reasons[1]


def test_the_numbers_of_a_doubt() -> None:
    [_, first] = verdict(measured(209, 23, guess=0.077)).reasons
    assert first == (
        "accuracy 0.110 is 0.074 to 0.160 with 95 % confidence, which includes 0.077, the "
        "majority-class accuracy; about 350 images would tell"
    )
    [_, change] = verdict(measured(150, 120, guess=0.1, gained=8, lost=8)).reasons
    assert change == (
        "the difference to the model in use is -0.055 to +0.055 with 95 % confidence, which "
        "includes -0.02; about 1,100 images would tell"
    )


def test_as_many_images_as_it_says_would_tell() -> None:
    # A hundredth more than needed by the simpler interval that the number is of.
    images = 360
    assert verdict(measured(images, round(images * 23 / 209), guess=0.077)).outcome == "blessed"
    images = 1100
    eight = round(images * 8 / 150)
    found = verdict(measured(images, round(images * 0.8), guess=0.1, gained=eight, lost=eight))
    assert found.outcome == "blessed"


def test_no_drop_allowed() -> None:
    same = measured(167, 150, guess=0.1, gained=0, lost=0)
    found = verdict(same, drop=0)
    assert (
        found.headline == "Not blessed: as good as the model in use cannot be told from 167 images."
    )
    assert not found.reasons[1].endswith("would tell"), "no number of images would"


def test_an_interval_without_a_model_in_use_is_not_looked_for() -> None:
    of = Measured(10, 0.9, Interval(0.6, 0.98), 0.5)
    assert verdict(of).outcome == "blessed"
