from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import balanced_accuracy_score, confusion_matrix

from pipeline_def.training.split_metrics import SplitMetrics

CLASSES = 4


@pytest.mark.parametrize("confusion", [True, False])
def test_metrics_of_several_batches(confusion: bool) -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 50)  # of the fourth class there is no image
    logits = random.normal(size=[50, CLASSES]).astype(np.float32)
    losses = random.random(50).astype(np.float32)
    metrics = SplitMetrics(CLASSES, confusion=confusion)
    for rows in (slice(0, 20), slice(20, 50)):
        metrics.update(*(tf.constant(values[rows]) for values in (losses, labels, logits)))
    guesses = logits.argmax(1)
    seen = labels[np.isin(labels, range(3))]
    result = metrics.result()
    assert result["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert result["accuracy"] == pytest.approx((labels == guesses).mean())
    expected = np.mean([(guesses[seen == label] == label).mean() for label in range(3)])
    assert result["balanced_accuracy"] == pytest.approx(expected)
    counted = metrics.confusion()
    assert (counted is not None) == confusion
    if counted is not None:
        matrix = confusion_matrix(labels, guesses, labels=range(CLASSES))
        np.testing.assert_array_equal(counted, matrix)
    metrics.reset()
    assert all(math.isnan(value) for value in metrics.result().values())


def test_balanced_accuracy_is_that_of_scikit_learn() -> None:
    labels, guesses = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 0, 2])
    metrics = SplitMetrics(3, confusion=False)
    metrics.update(tf.zeros(6), tf.constant(labels), tf.one_hot(guesses, 3))
    assert metrics.result()["balanced_accuracy"] == pytest.approx(
        balanced_accuracy_score(labels, guesses)
    )
