from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.trainer.config.training import TrainingConfig
from components.trainer.loop.optimizer import Schedule, WeightAverage, make_optimizer

STEPS = 10


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        pytest.param("linear", 0.0, {0: 1, 50: 0.5}, id="linear ends at zero"),
        pytest.param("cosine", 0.0, {0: 1, 25: 0.853553, 50: 0.5, 100: 0}, id="cosine"),
        pytest.param("step", 0.0, {49: 1, 50: 0.1, 75: 0.01, 90: 0.001, 99: 0.001}, id="step"),
        pytest.param("linear", 2.0, {0: 0.05, 19: 1, 20: 1, 60: 0.5, 100: 0}, id="after warm-up"),
        pytest.param("constant", 0.5, {0: 0.2, 4: 1, 5: 1}, id="half an epoch of warm-up"),
        pytest.param("linear", 20.0, {49: 1, 75: 0.5}, id="warm-up longer than training"),
    ],
)
def test_learning_rate_is_a_function_of_the_step(
    schedule: Any, warmup: float, expected: dict[int, float]
) -> None:
    config = TrainingConfig(
        epochs=10, learning_rate=4.0, schedule=schedule, warmup_epochs=warmup, optimizer="sgd"
    )
    rate = Schedule(config, steps=STEPS)
    for step, fraction in expected.items():
        found = float(rate(tf.constant(step, tf.int64)))
        assert found == pytest.approx(4 * fraction, rel=1e-5, abs=1e-6)


def update(config: TrainingConfig, gradient: float) -> list[Any]:
    """Return a kernel and a bias of ones after an update with a constant gradient."""
    variables = [tf.Variable(tf.ones([2, 2])), tf.Variable(tf.ones([2]))]
    optimizer = make_optimizer(config, variables, schedule=Schedule(config, steps=STEPS))
    gradients = [tf.fill(variable.shape, gradient) for variable in variables]
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return [variable.numpy() for variable in variables]


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_weight_decay_skips_variables_with_one_axis(optimizer: Any) -> None:
    config = TrainingConfig(
        optimizer=optimizer, learning_rate=0.5, schedule="constant", weight_decay=0.2
    )
    kernel, bias = update(config, gradient=0.0)
    np.testing.assert_allclose(kernel, 0.9)
    np.testing.assert_array_equal(bias, 1.0)


def dense() -> tf_keras.Model:
    return tf_keras.Sequential([tf_keras.layers.Dense(2, input_shape=[3])])


def test_the_average_follows_the_weights() -> None:
    model = dense()
    kernel, bias = model.variables
    kernel.assign(tf.zeros([3, 2]))
    average = WeightAverage(model, decay=0.4)
    expected = 0.0
    for update, value in enumerate([1.0, 2.0, 4.0, 8.0, 16.0], start=1):
        kernel.assign(tf.fill([3, 2], value))
        average.update(tf.constant(update, tf.int64))
        decay = min(0.4, (1 + update) / (10 + update))
        expected = decay * expected + (1 - decay) * value
    with average.in_place():
        np.testing.assert_allclose(kernel, expected, rtol=1e-6)
        np.testing.assert_array_equal(bias, 0.0)
    np.testing.assert_array_equal(kernel, 16.0)
    with pytest.raises(RuntimeError), average.in_place():
        raise RuntimeError
    np.testing.assert_array_equal(kernel, 16.0)


def test_the_average_of_frozen_weights_equals_them_bit_for_bit() -> None:
    model = dense()
    frozen = model.get_weights()
    average = WeightAverage(model, decay=0.999)
    for number in range(1, 30):
        average.update(tf.constant(number, tf.int64))
    with average.in_place():
        for ours, theirs in zip(model.get_weights(), frozen, strict=True):
            np.testing.assert_array_equal(ours, theirs)
