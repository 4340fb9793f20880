"""Loss, accuracy and confusion of one split, summed up on the device until an epoch is over."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf


class SplitMetrics(tf.Module):
    """Sums over images from which the metrics of an epoch are computed, on the host.

    Two variables, as each op of a step that takes a millisecond counts. All counts are whole
    numbers, exact in float32 up to 16 million a cell.
    """

    def __init__(self, classes: int, *, confusion: bool) -> None:
        """Start from zero, in the scope of the current strategy.

        Args:
            classes: number of them.
            confusion: count how often each class was taken for each other one. Without it only how
                often it was recognised, which with a thousand classes is much less.
        """
        super().__init__()
        self._classes, self._confusion = classes, confusion
        self._loss = _sum([])
        self._counts = _sum([classes, classes if confusion else 2])

    def update(self, losses: tf.Tensor, labels: tf.Tensor, logits: tf.Tensor) -> None:
        """Add the images of a batch, in the context of a replica.

        Args:
            losses: float32 [batch].
            labels: int [batch]: what the images are.
            logits: float32 [batch, classes].
        """
        guesses = tf.argmax(logits, axis=1, output_type=labels.dtype)
        if self._confusion:
            columns = tf.one_hot(guesses, self._classes)
        else:
            hits = tf.cast(labels == guesses, tf.float32)
            columns = tf.stack([hits, tf.ones_like(hits)], axis=1)
        rows = tf.one_hot(labels, self._classes)
        self._loss.assign_add(tf.reduce_sum(losses))
        self._counts.assign_add(tf.matmul(rows, columns, transpose_a=True))

    def result(self) -> dict[str, float]:
        """Return `loss`, `accuracy` and `balanced_accuracy`, not a number without any image."""
        counts = self._counts.numpy().astype(np.float64)
        hits, images = (np.diag(counts), counts.sum(1)) if self._confusion else counts.T
        total = images.sum()
        recalls = hits[images > 0] / images[images > 0]
        return {
            "loss": float(self._loss.numpy() / total) if total else float("nan"),
            "accuracy": float(hits.sum() / total) if total else float("nan"),
            "balanced_accuracy": float(recalls.mean()) if total else float("nan"),
        }

    def confusion(self) -> npt.NDArray[np.int64] | None:
        """Return how many images of each class (row) were taken for each class (column).

        None if that was not counted.
        """
        if not self._confusion:
            return None
        counts: npt.NDArray[np.int64] = self._counts.numpy().astype(np.int64)
        return counts

    def reset(self) -> None:
        """Start from zero again."""
        for variable in (self._loss, self._counts):
            variable.assign(tf.zeros_like(variable))


def _sum(shape: list[int]) -> Any:
    return tf.Variable(
        tf.zeros(shape),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
