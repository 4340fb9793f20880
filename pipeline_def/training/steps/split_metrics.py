"""Loss and accuracy of a split, summed on the device during an epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


class SplitMetrics(tf.Module):
    """Sums over images, from which the host computes the metrics of an epoch.

    There are only two variables, as every operation counts in a step that takes a millisecond.
    Counts are whole numbers, exact in float32 up to 16 million per class.
    """

    def __init__(self, classes: int) -> None:
        """Start from zero, in the scope of the current strategy."""
        super().__init__()
        self._classes = classes
        self._loss = _make_sum([])
        # Recognized images of each class, and all of them.
        self._counts = _make_sum([classes, 2])

    def update(self, losses: tf.Tensor, labels: tf.Tensor, logits: tf.Tensor) -> None:
        """Add a batch, in the context of a replica.

        Args:
            losses: float32 [batch].
            labels: int [batch], the true label ids.
            logits: float32 [batch, classes].
        """
        predicted = tf.argmax(logits, axis=1, output_type=labels.dtype)
        hits = tf.cast(labels == predicted, tf.float32)
        columns = tf.stack([hits, tf.ones_like(hits)], axis=1)
        rows = tf.one_hot(labels, self._classes)
        self._loss.assign_add(tf.reduce_sum(losses))
        self._counts.assign_add(tf.matmul(rows, columns, transpose_a=True))

    def result(self) -> dict[str, float]:
        """Return `loss`, `accuracy` and `balanced_accuracy`, NaN if there are no images."""
        hits, images = self._counts.numpy().astype(np.float64).T
        total = images.sum()
        if not total:
            return dict.fromkeys(("loss", "accuracy", "balanced_accuracy"), float("nan"))
        recalls = hits[images > 0] / images[images > 0]
        return {
            "loss": float(self._loss.numpy() / total),
            "accuracy": float(hits.sum() / total),
            "balanced_accuracy": float(recalls.mean()),
        }

    def reset(self) -> None:
        """Start from zero again."""
        for variable in (self._loss, self._counts):
            variable.assign(tf.zeros_like(variable))


def _make_sum(shape: list[int]) -> Any:
    return tf.Variable(
        tf.zeros(shape),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
