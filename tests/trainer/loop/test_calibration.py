from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray
from scipy.special import softmax

from components.metrics.calibration import measure_sets
from components.metrics.predictions import Predictions
from components.trainer.export.signatures import Classifier
from components.trainer.loop import calibration
from components.trainer.loop.calibration import (
    compile_logits,
    fit_sets,
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


@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_label_sets_cover_images_that_they_were_not_fitted_on(coverage: float) -> None:
    logits, ids = predictions(2.0)
    sets = fit_sets(logits[:10_000], ids[:10_000], temperature=3.0, coverage=coverage)
    scores = softmax(logits[10_000:] / 3.0, axis=1).astype(np.float32)
    model = Classifier(tf_keras.Sequential(), set_threshold=sets.threshold)
    inside = model.find_sets(tf.constant(scores)).numpy()
    rows = np.arange(len(inside))
    assert inside[rows, scores.argmax(axis=1)].all()
    assert inside[rows, ids[10_000:]].mean() == pytest.approx(coverage, abs=0.01)
    measured = measure_sets(
        Predictions(tuple("abcde"), ids[10_000:], scores), **asdict(sets), held_out=True
    )
    assert measured.found == inside[rows, ids[10_000:]].mean()
    assert measured.size == inside.sum(axis=1).mean()
    assert measured.found is not None
    assert measured.interval is not None
    assert measured.found in measured.interval


@pytest.mark.parametrize(("images", "enough"), [(18, False), (19, True)])
def test_a_label_set_takes_enough_images(images: int, enough: bool) -> None:
    logits, ids = predictions(1.0, images)
    sets = fit_sets(logits, ids, temperature=1.0, coverage=0.95)
    assert (sets.threshold is not None) == enough
    if sets.threshold is not None:
        # All images but none are needed: the least probability of a true label.
        least = softmax(logits, axis=1)[np.arange(images), ids].min()
        assert sets.threshold == pytest.approx(least)


def test_an_unknown_label_is_in_no_set() -> None:
    sets = fit_sets(np.eye(20) * 9, np.full(20, -1), temperature=1.0, coverage=0.9)
    assert sets.threshold == 0


def test_files_that_were_not_decoded_have_empty_sets() -> None:
    model = Classifier(tf_keras.Sequential(), set_threshold=0.4)
    scores = tf.constant([[0.0, 0.0, 0.0], [0.3, 0.35, 0.35], [0.5, 0.45, 0.05]])
    assert model.find_sets(scores).numpy().tolist() == [
        [False, False, False],
        [False, True, True],
        [True, True, False],
    ]


def test_a_bounded_number_of_logits_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_MOST_LOGITS", 50)
    batches = tf.data.Dataset.from_tensor_slices((np.eye(9), np.arange(9))).repeat(4).batch(4)
    logits, ids = predict_logits(tf.identity, batches)
    assert (logits.shape, ids.tolist()) == ((8, 9), [*range(8)])
