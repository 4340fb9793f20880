from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray
from scipy.special import softmax

from components.trainer.export.signatures import Classifier
from components.trainer.loop import calibration
from components.trainer.loop.calibration import (
    compile_logits,
    fit_temperature,
    predict_logits,
)


def predictions(
    temperature: float, images: int = 20_000
) -> tuple[NDArray[np.floating[Any]], NDArray[np.int64]]:
    """Return logits that are calibrated when divided by `temperature`, and true label ids."""
    random = np.random.default_rng(0)
    logits = random.normal(size=(images, 5)) * 2
    chances = softmax(logits, axis=1)
    ids = (random.random((images, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(max=4)
    return logits * temperature, ids


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_is_found(temperature: float) -> None:
    found = fit_temperature(*predictions(temperature))
    assert found.temperature == pytest.approx(temperature, rel=0.05)
    assert found.images == 20_000
    assert found.calibrated_loss == pytest.approx(fit_temperature(*predictions(1.0)).loss, rel=1e-3)
    assert (found.loss > 1.05 * found.calibrated_loss) == (temperature != 1.0)


def test_a_model_that_is_always_right_stays_finite() -> None:
    found = fit_temperature(np.eye(3) * 10, np.arange(3))
    assert 0.04 < found.temperature < 1
    assert np.isfinite([found.loss, found.calibrated_loss]).all()


def test_calibration_uses_the_served_views() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (64, 8, 8, 3), np.uint8)
    ids = np.arange(64) % 2
    inputs = tf_keras.layers.Input([8, 8, 3], dtype="uint8")
    left = tf_keras.layers.Flatten()(tf.cast(inputs[:, :, :4], tf.float32) / 255)
    model = tf_keras.Model(inputs, tf_keras.layers.Dense(2)(left))
    batches = tf.data.Dataset.from_tensor_slices((pixels, ids)).batch(20)
    logits = (model(pixels) + model(pixels[:, :, ::-1])).numpy() / 2
    found, found_ids = predict_logits(compile_logits(Classifier(model, views=2)), batches)
    np.testing.assert_allclose(found, logits, atol=1e-4)
    np.testing.assert_array_equal(found_ids, ids)


def test_a_bounded_number_of_logits_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_MOST_LOGITS", 50)
    batches = tf.data.Dataset.from_tensor_slices((np.eye(9), np.arange(9))).repeat(4).batch(4)
    logits, ids = predict_logits(tf.identity, batches)
    assert (logits.shape, ids.tolist()) == ((8, 9), [*range(8)])
