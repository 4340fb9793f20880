import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from sklearn.metrics import balanced_accuracy_score

from components.trainer.config.training import TrainingConfig
from components.trainer.loop.metrics import SplitMetrics
from components.trainer.loop.step import Schedule, Step, make_optimizer

BATCH, FEATURES, CLASSES = 10, 4, 3
# Of the gradient in the first step: the first half of the warm-up, and Nesterov's momentum.
FIRST = 0.5 * 1.85
RANDOM = np.random.default_rng(0)
INPUTS = tf.constant(RANDOM.normal(size=[BATCH, FEATURES]), tf.float32)
LABELS = tf.constant(RANDOM.integers(0, CLASSES, BATCH))


def make_step(
    *, class_weights: Any = None, frozen: bool = False, penalty: bool = False, **options: Any
) -> tuple[tf_keras.Model, Step]:
    tf_keras.utils.set_random_seed(1)
    layers = [
        tf_keras.layers.Dense(5, activation="tanh", input_shape=[FEATURES], trainable=not frozen),
        tf_keras.layers.Dense(CLASSES),
    ]
    model = tf_keras.Sequential(layers)
    if penalty:
        for layer in layers:
            layer.add_loss(lambda kernel=layer.kernel: 3 * tf.reduce_sum(kernel))
    step = Step(
        model,
        config=TrainingConfig(optimizer="sgd", learning_rate=1.0, **options),
        augmentation=None,
        batch_size=BATCH,
        steps=1,
        class_weights=class_weights,
    )
    return model, step


def update(step: Step, inputs: tf.Tensor = INPUTS) -> float:
    return float(step.update(inputs, LABELS, tf.constant(0, tf.int64)))


def change(**options: Any) -> tuple[list[Any], float]:
    """Return the change of each weight in one step, and the loss."""
    model, step = make_step(**options)
    before = model.get_weights()
    loss = update(step)
    return [a - b for a, b in zip(model.get_weights(), before, strict=True)], loss


def test_losses_of_layers_count_once_a_step() -> None:
    """Regularizers, too, are losses of layers. The gradient of this one is 3 for each kernel."""
    plain, loss = change()
    changes, penalized = change(penalty=True)
    kernels = make_step()[0].get_weights()[::2]
    assert penalized == pytest.approx(loss + 3 * sum(kernel.sum() for kernel in kernels), rel=1e-5)
    for ours, theirs in zip(changes, plain, strict=True):
        np.testing.assert_allclose(ours, theirs - 3 * FIRST * (ours.ndim == 2), atol=1e-5)


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


def test_evaluation_uses_the_plain_loss() -> None:
    _, step = make_step(label_smoothing=0.3, class_weights=[0.5, 2.0, 3.0])
    step.evaluate(INPUTS, LABELS)
    expected = expected_loss(smoothing=0.0, weights=[1.0] * CLASSES)
    assert step.evaluation.result()["loss"] == pytest.approx(expected, rel=1e-5)


def test_training_continues_after_an_overflow_in_float16() -> None:
    model, step = make_step(precision="float16")
    before = model.get_weights()
    update(step, INPUTS * float("inf"))
    tf.nest.map_structure(np.testing.assert_array_equal, model.get_weights(), before)
    update(step)
    changes = zip(model.get_weights(), before, strict=True)
    assert all(np.isfinite(a).all() and (a != b).any() for a, b in changes)


def test_frozen_layers_are_not_trained() -> None:
    changes, _ = change(frozen=True, weight_decay=0.5)
    assert [bool(part.any()) for part in changes] == [False, False, True, True]


def test_metrics_of_several_batches() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 50)  # no image of the fourth class
    logits = random.normal(size=[50, 4]).astype(np.float32)
    logits[:, 3] = -9  # scikit-learn would count it as a class without images
    losses = random.random(50).astype(np.float32)
    metrics = SplitMetrics(4)
    for rows in (slice(0, 20), slice(20, 50)):
        metrics.update(*(tf.constant(values[rows]) for values in (losses, labels, logits)))
    predicted = logits.argmax(1)
    result = metrics.result()
    assert result["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert result["accuracy"] == pytest.approx((labels == predicted).mean())
    expected = balanced_accuracy_score(labels, predicted)
    assert result["balanced_accuracy"] == pytest.approx(expected)
    metrics.reset()
    assert all(math.isnan(value) for value in metrics.result().values())


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
    rate = Schedule(TrainingConfig(optimizer=optimizer), steps=STEPS - 1)
    # A compiled step serves folds of other sizes, and trainings of other lengths.
    rate.plan(config, steps=STEPS)
    for step, fraction in expected.items():
        learning_rate = float(rate(tf.constant(step, tf.int64)))
        assert learning_rate == pytest.approx(4 * fraction, rel=1e-5, abs=1e-6)


def apply(config: TrainingConfig, gradient: float) -> list[Any]:
    """Return a kernel and a bias of ones after an update with a constant gradient."""
    variables = [tf.Variable(tf.ones([2, 2])), tf.Variable(tf.ones([2]))]
    optimizer = make_optimizer(config, variables, schedule=Schedule(config, steps=STEPS))
    gradients = [tf.fill(variable.shape, gradient) for variable in variables]
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return [variable.numpy() for variable in variables]


@pytest.mark.parametrize(("optimizer", "warming"), [("sgd", 0.05), ("adamw", 0.1)])
def test_weight_decay_skips_variables_with_one_axis(optimizer: Any, warming: float) -> None:
    config = TrainingConfig(optimizer=optimizer, learning_rate=5.0, weight_decay=0.2)
    kernel, bias = apply(config, gradient=0.0)
    np.testing.assert_allclose(kernel, 1 - 5.0 * 0.2 * warming, rtol=1e-6)
    np.testing.assert_array_equal(bias, 1.0)
