from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import balanced_accuracy_score

from pipeline_def.training.steps.split_metrics import SplitMetrics

CLASSES = 4


def test_metrics_of_several_batches() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 50)  # no image of the fourth class
    logits = random.normal(size=[50, CLASSES]).astype(np.float32)
    logits[:, 3] = -9  # scikit-learn would count it as a class without images
    losses = random.random(50).astype(np.float32)
    metrics = SplitMetrics(CLASSES)
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
