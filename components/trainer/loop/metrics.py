"""Metrics of epochs, and their TensorBoard logs."""

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import tensorflow as tf

_VALIDATION = "val_"
# TensorBoard shows training as it runs, but a bucket should be written to at most this often.
_FLUSH_SECONDS = 30
_MOST_WAITING = 10_000


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
        """Add losses [batch], true label ids [batch] and logits [batch, classes]."""
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


class TrainingLog:
    """Logs in the folders `train` and `validation`; use it as a context manager."""

    def __init__(self, directory: str, *, first_epoch: int = 0, first_step: int = 0) -> None:
        """Log into `directory`, a path or URL.

        A further phase continues the numbers of epochs and steps from `first_epoch` and
        `first_step`.
        """
        self._directory, self._first_epoch, self._first_step = directory, first_epoch, first_step
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def write(self, values: Mapping[str, float], epoch: int) -> None:
        """Write the metrics of an epoch, from 1 on, under Keras's names.

        Metrics of the eval split begin with `val_`.
        """
        for name, value in values.items():
            part = "validation" if name.startswith(_VALIDATION) else "train"
            tag = f"epoch_{name.removeprefix(_VALIDATION)}"
            self._write(part, tag, value, self._first_epoch + epoch)
        for writer in self._writers.values():
            writer.flush()

    def write_step(self, step: int, **values: float) -> None:
        """Write numbers of a step by name."""
        for name, value in values.items():
            self._write("train", f"batch_{name}", value, self._first_step + step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def _write(self, part: str, tag: str, value: float, step: int) -> None:
        """Write a number into a folder, whose file appears with the first one."""
        if part not in self._writers:
            self._writers[part] = tf.summary.create_file_writer(
                os.path.join(self._directory, part),
                max_queue=_MOST_WAITING,
                flush_millis=_FLUSH_SECONDS * 1000,
            )
        with self._writers[part].as_default():
            tf.summary.scalar(tag, value, step)
