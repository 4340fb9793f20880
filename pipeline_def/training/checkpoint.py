"""Checkpoints of training: enough to go on as if it had never been interrupted."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

WATCHED = "val_loss"
"""What early stopping watches: lower is better."""


@dataclass
class Progress:
    """Where training is, beside what the model's and the optimizer's variables say."""

    history: dict[str, list[float]] = field(default_factory=dict)
    """Metric → its value in every epoch."""
    best_epoch: int = 0
    """The one with the lowest loss on the eval split, from 1 on; 0: none is over yet."""
    best_weights: list[Any] = field(default_factory=list)
    """Of that epoch, as Keras's `get_weights` gives them."""
    steps: int = 0
    """Of the current epoch."""
    seconds: float = 0.0
    """That these steps took."""
    waited: float = 0.0
    """Of these seconds, for input."""

    @property
    def epochs(self) -> int:
        """Epochs that are over."""
        return len(self.history.get(WATCHED, []))

    @property
    def epochs_since_best(self) -> int:
        """Epochs that were no better than an earlier one, since then."""
        return self.epochs - self.best_epoch

    def end_epoch(self, values: dict[str, float], model: tf_keras.Model) -> None:
        """Note the metrics of an epoch, and the weights if they are the best so far."""
        best = min(self.history.get(WATCHED, [float("inf")]))
        for name, value in values.items():
            self.history.setdefault(name, []).append(value)
        if values[WATCHED] < best or self.best_epoch == 0:
            self.best_epoch = self.epochs
            self.best_weights = model.get_weights()
        self.steps, self.seconds, self.waited = 0, 0.0, 0.0


class _SavedProgress(tf.train.experimental.PythonState):
    """Puts `Progress` into the checkpoint, so that both are of the same step."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def serialize(self) -> bytes:
        facts = dict(vars(self._progress))
        weights = facts.pop("best_weights")
        buffer = io.BytesIO()
        np.savez(buffer, json.dumps(facts), *weights)
        return buffer.getvalue()

    def deserialize(self, value: bytes) -> None:
        with np.load(io.BytesIO(value), allow_pickle=False) as arrays:
            facts, *weights = (arrays[name] for name in arrays.files)
        vars(self._progress).update(json.loads(str(facts)), best_weights=weights)


class Checkpoints:
    """The latest checkpoint of a training; it appears whole, or not at all."""

    def __init__(self, directory: str, **state: Any) -> None:
        """Keep it in `directory`; `state` are the objects whose variables belong to it."""
        self.progress = Progress()
        self._directory = directory
        checkpoint = tf.train.Checkpoint(progress=_SavedProgress(self.progress), **state)
        self._manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)

    def restore(self) -> None:
        """Restore everything from the latest checkpoint, if there is one."""
        path = self._manager.latest_checkpoint
        if path:
            self._manager.checkpoint.restore(path).assert_existing_objects_matched()

    def save(self) -> None:
        """Write a checkpoint, then remove the one before."""
        self._manager.save()

    def remove(self) -> None:
        """Remove the checkpoint of a training that is over."""
        if tf.io.gfile.exists(self._directory):
            tf.io.gfile.rmtree(self._directory)
