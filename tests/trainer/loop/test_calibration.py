from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray
from scipy.special import softmax

from components.trainer.loop import calibration
from components.trainer.loop.calibration import fit_temperature, predict_logits


def predictions(temperature: float) -> tuple[NDArray[np.floating[Any]], NDArray[np.int64]]:
    """Return logits that are calibrated when divided by `temperature`, and true label ids."""
    random = np.random.default_rng(0)
    logits = random.normal(size=(20_000, 5)) * 2
    chances = softmax(logits, axis=1)
    ids = (random.random((20_000, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(max=4)
    return logits * temperature, ids


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_is_found(temperature: float) -> None:
    assert fit_temperature(*predictions(temperature)) == pytest.approx(temperature, rel=0.05)


def test_a_model_that_is_always_right_stays_finite() -> None:
    assert 0.04 < fit_temperature(np.eye(3) * 10, np.arange(3)) < 1


def test_a_bounded_number_of_logits_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_MOST_LOGITS", 50)
    batches = tf.data.Dataset.from_tensor_slices((np.eye(9), np.arange(9))).repeat(4).batch(4)
    logits, ids = predict_logits(tf.identity, batches)
    assert (logits.shape, ids.tolist()) == ((8, 9), [*range(8)])
