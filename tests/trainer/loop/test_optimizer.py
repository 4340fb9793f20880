from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.trainer.config.training import TrainingConfig
from components.trainer.loop.optimizer import Schedule, make_optimizer

STEPS = 10


@pytest.mark.parametrize(
    ("optimizer", "epochs", "expected"),
    [
        pytest.param("adam", 10, {0: 1, 25: 0.853553, 50: 0.5, 100: 0}, id="a cosine"),
        pytest.param("adamw", 10, {0: 0.1, 9: 1, 10: 1, 55: 0.5, 100: 0}, id="after an epoch"),
        pytest.param("sgd", 10, {0: 0.05, 19: 1, 20: 1, 60: 0.5, 100: 0}, id="linear after two"),
        pytest.param("sgd", 3, {0: 1 / 15, 14: 1, 15: 1, 30: 0}, id="half of a short training"),
    ],
)
def test_learning_rate_is_a_function_of_the_step(
    optimizer: Any, epochs: int, expected: dict[int, float]
) -> None:
    config = TrainingConfig(epochs=epochs, learning_rate=4.0, optimizer=optimizer)
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


@pytest.mark.parametrize(("optimizer", "warming"), [("sgd", 0.05), ("adamw", 0.1)])
def test_weight_decay_skips_variables_with_one_axis(optimizer: Any, warming: float) -> None:
    config = TrainingConfig(optimizer=optimizer, learning_rate=5.0, weight_decay=0.2)
    kernel, bias = update(config, gradient=0.0)
    np.testing.assert_allclose(kernel, 1 - 5.0 * 0.2 * warming, rtol=1e-6)
    np.testing.assert_array_equal(bias, 1.0)
