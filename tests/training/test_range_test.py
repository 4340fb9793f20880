"""The learning rate range test: what it suggests, and that the training stays the same."""

import math

import numpy as np
import pytest

from pipeline_def.training.range_test import summarize

RATES = np.geomspace(1e-5, 10, 120).tolist()


def losses(explodes_at: float) -> list[float]:
    """Return a loss that falls up to a tenth of a rate, and explodes at the rate."""
    return [
        2.0 - 1.5 * min(1, rate / explodes_at * 10) ** 0.5 + (rate / explodes_at) ** 3 * 50
        for rate in RATES
    ]


@pytest.mark.parametrize("explodes_at", [1e-2, 1.0])
def test_a_tenth_of_the_rate_of_the_lowest_loss_is_suggested(explodes_at: float) -> None:
    found = summarize(RATES, losses(explodes_at), used=0.5)
    assert found.lowest is not None
    assert explodes_at / 20 < found.lowest < explodes_at
    assert found.suggested == pytest.approx(found.lowest / 10, rel=0.34)
    assert len(found.rates) == len(found.losses) < len(RATES)
    assert max(found.losses) < 4 * min(found.losses)
    assert f"try --training.learning_rate {found.suggested:g}; this training used 0.5" in found.text


def test_a_loss_that_is_not_finite_ends_the_test() -> None:
    some = [2.0] * 30 + [1.0] * 30 + [math.nan] * 60
    found = summarize(RATES, some, used=0.1)
    assert len(found.rates) == 60
    assert found.lowest == RATES[59]
    found = summarize(RATES[:10], [math.nan] * 10, used=0.1)
    assert (found.suggested, found.losses) == (None, [])
    assert found.text == "The loss is not finite even at a learning rate of 1e-05."
