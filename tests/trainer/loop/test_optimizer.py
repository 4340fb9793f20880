from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.trainer.config.training import TrainingConfig
from components.trainer.loop.optimizer import Schedule, make_optimizer

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
