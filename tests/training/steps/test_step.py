from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from pipeline_def.config.training import TrainingConfig
from pipeline_def.training.steps.optimizer import Schedule, make_optimizer
from pipeline_def.training.steps.step import Step

BATCH, FEATURES, CLASSES = 10, 4, 3
RANDOM = np.random.default_rng(0)
INPUTS = tf.constant(RANDOM.normal(size=[BATCH, FEATURES]), tf.float32)
LABELS = tf.constant(RANDOM.integers(0, CLASSES, BATCH))


def make_step(**options: Any) -> tuple[tf_keras.Model, Step]:
    """Return a step of plain gradient descent with a rate of one, and its model."""
    weights = options.pop("class_weights", None)
    tf_keras.utils.set_random_seed(1)
    layers = [
        tf_keras.layers.Dense(5, activation="tanh", input_shape=[FEATURES]),
        tf_keras.layers.Dense(CLASSES),
    ]
    model = tf_keras.Sequential(layers)
    plain = {"optimizer": "sgd", "momentum": 0.0, "schedule": "constant", "learning_rate": 1.0}
    config = TrainingConfig(**{**plain, **options})
    variables = model.trainable_variables
    step = Step(
        model,
        optimizer=make_optimizer(config, variables, schedule=Schedule(config, steps=1)),
        config=config,
        augmentation=None,
        batch_size=BATCH,
        class_weights=weights,
    )
    return model, step


def change(**options: Any) -> tuple[list[Any], float]:
    """Return how much one step changes each weight, and its loss."""
    model, step = make_step(**options)
    before = model.get_weights()
    loss, _ = step.update(INPUTS, LABELS, tf.constant(0, tf.int64))
    after = model.get_weights()
    return [a - b for a, b in zip(after, before, strict=True)], float(loss)


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(5, id="parts of two"),
        pytest.param(3, id="parts of three and four"),
        pytest.param(99, id="more parts than images"),
    ],
)
def test_a_batch_in_parts_is_the_same_as_a_whole_one(parts: int) -> None:
    whole, loss = change()
    accumulated, loss_of_parts = change(accumulate=parts)
    assert loss_of_parts == pytest.approx(loss, rel=1e-5)
    for ours, theirs in zip(accumulated, whole, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_metrics_see_every_image_of_every_part() -> None:
    _, step = make_step(accumulate=3)
    step.update(INPUTS, LABELS, tf.constant(0, tf.int64))
    _, whole = make_step()
    whole.update(INPUTS, LABELS, tf.constant(0, tf.int64))
    assert step.train.result() == pytest.approx(whole.train.result(), rel=1e-5)


def test_clipping_is_of_all_gradients_together() -> None:
    whole, _ = change()
    norm = float(np.sqrt(sum((part**2).sum() for part in whole)))
    clipped, _ = change(clip_norm=norm / 4, accumulate=2)
    for ours, theirs in zip(clipped, whole, strict=True):
        np.testing.assert_allclose(ours, theirs / 4, atol=1e-5)
    unclipped, _ = change(clip_norm=norm * 2)
    for ours, theirs in zip(unclipped, whole, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def expected_loss(*, smoothing: float, weights: list[float]) -> float:
    model, _ = make_step()
    logits = model(INPUTS).numpy()
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    targets = np.eye(CLASSES)[LABELS.numpy()] * (1 - smoothing) + smoothing / CLASSES
    losses = -(targets * log_p).sum(1) * np.array(weights)[LABELS.numpy()]
    return float(losses.mean())


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 3.0]])
def test_smoothing_and_class_weights(smoothing: float, weights: Any) -> None:
    _, loss = change(label_smoothing=smoothing, class_weights=weights)
    expected = expected_loss(smoothing=smoothing, weights=weights or [1.0] * CLASSES)
    assert loss == pytest.approx(expected, rel=1e-5)


def test_a_mixed_label_is_weighted_by_what_is_in_it() -> None:
    _, step = make_step(class_weights=[1.0, 3.0, 5.0])
    targets, logits = tf.constant([[0.25, 0.75, 0.0]]), tf.constant([[1.0, 2.0, 0.5]])
    plain = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
    np.testing.assert_allclose(step._losses(targets, logits), plain * 2.5, rtol=1e-6)


def test_evaluation_takes_the_plain_loss() -> None:
    _, step = make_step(label_smoothing=0.3, class_weights=[0.5, 2.0, 3.0])
    step.evaluate(INPUTS, LABELS)
    expected = expected_loss(smoothing=0.0, weights=[1.0] * CLASSES)
    assert step.evaluation.result()["loss"] == pytest.approx(expected, rel=1e-5)


def test_an_overflow_in_float16_stops_nothing_and_is_not_learned_from() -> None:
    model, step = make_step(precision="float16", ema=0.9, clip_norm=1.0)
    before = model.get_weights()
    step.update(INPUTS * float("inf"), LABELS, tf.constant(0, tf.int64))
    for ours, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    step.update(INPUTS, LABELS, tf.constant(1, tf.int64))
    changes = zip(model.get_weights(), before, strict=True)
    assert all(np.isfinite(a).all() and (a != b).any() for a, b in changes)


def test_what_is_frozen_is_not_trained() -> None:
    model, _ = make_step()
    model.layers[0].trainable = False
    config = TrainingConfig(optimizer="sgd", weight_decay=0.5, learning_rate=1.0, ema=0.9)
    variables = model.trainable_variables
    step = Step(
        model,
        optimizer=make_optimizer(config, variables, schedule=Schedule(config, steps=9)),
        config=config,
        augmentation=None,
        batch_size=BATCH,
        class_weights=None,
    )
    before = model.get_weights()
    step.update(INPUTS, LABELS, tf.constant(0, tf.int64))
    same = [np.array_equal(a, b) for a, b in zip(model.get_weights(), before, strict=True)]
    assert same == [True, True, False, False]
