"""Checkpoints of training: enough to go on as if it had never been interrupted."""

from __future__ import annotations

import io
import json
import logging
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from pipeline_def.training.distribution.workers import own_directory, require_agreement, settle

_LOGGER = logging.getLogger(__name__)

_LOSS = "val_loss"

# What TensorFlow and NumPy raise for files that are damaged, or of another model; and what of that
# means that a store does not answer, whose checkpoint may be sound.
_UNFIT = (AssertionError, ValueError, LookupError, zipfile.BadZipFile, tf.errors.OpError)
_UNREACHABLE = (
    *(tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError),
    *(tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError),
)


@dataclass
class Progress:
    """Where training is, beside what the model's and the optimizer's variables say."""

    watched: str = _LOSS
    """Metric by which epochs are compared; of a loss lower is better, of all others higher."""
    history: dict[str, list[float]] = field(default_factory=dict)
    """Metric → its value in every epoch."""
    best_epoch: int = 0
    """The best one, from 1 on; 0: there was none with a finite loss on the eval split yet."""
    best_weights: list[Any] = field(default_factory=list)
    """Weights at the end of that epoch, as Keras's `get_weights` gives them."""
    steps: int = 0
    """Steps of the current epoch that are done."""
    seconds: float = 0.0
    """Time that these steps took."""
    waited: float = 0.0
    """Part of these seconds spent waiting for input."""

    @property
    def epochs(self) -> int:
        """Epochs that are over."""
        return len(self.history.get(self.watched, []))

    @property
    def epochs_since_best(self) -> int:
        """Epochs that were no better than an earlier one, since then."""
        return self.epochs - self.best_epoch

    def end_epoch(self, values: dict[str, float], model: tf_keras.Model) -> None:
        """Note the metrics of an epoch, and the weights if they are the best so far."""
        better = self._is_better(values)
        for name, value in values.items():
            self.history.setdefault(name, []).append(value)
        if better:
            self.best_epoch = self.epochs
            self.best_weights = model.get_weights()
        self.steps, self.seconds, self.waited = 0, 0.0, 0.0

    def _is_better(self, values: dict[str, float]) -> bool:
        # A network whose loss is not a number still has an accuracy: that of its first class.
        if not all(math.isfinite(values[name]) for name in (_LOSS, self.watched)):
            return False
        if not self.best_epoch:
            return True
        value, best = values[self.watched], self.history[self.watched][self.best_epoch - 1]
        return value < best if self.watched == _LOSS else value > best


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

    def __init__(
        self,
        directory: str,
        *,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer,
        parts: Mapping[str, tf.Module],
        watched: str = _LOSS,
        strategy: tf.distribute.Strategy | None = None,
    ) -> None:
        """Keep the variables of `model`, `optimizer` and `parts`, and a progress, there.

        Args:
            directory: a path or URL. Of several workers each restores what the chief has saved; all
                must see it.
            model: built.
            optimizer: built for the model's trainable variables.
            parts: name → what else has variables.
            watched: metric by which epochs are compared.
            strategy: under which all this was made; None: the current one.
        """
        self.progress = Progress(watched)
        checkpoint = tf.train.Checkpoint(
            progress=_SavedProgress(self.progress), model=model, optimizer=optimizer, **parts
        )
        # The model's own list, and that of an optimizer with loss scaling, lack some.
        everything = tf.train.TrackableView(checkpoint).descendants()
        self._variables = [part for part in everything if hasattr(part, "assign")]
        self._strategy, self._directory = strategy or tf.distribute.get_strategy(), directory
        own = own_directory(directory, self._strategy)
        self._manager = tf.train.CheckpointManager(checkpoint, own, max_to_keep=1)

    def restore(self) -> None:
        """Restore everything from the latest checkpoint, if there is one that fits.

        Raises:
            ConfigurationError: the workers have not restored the same.
        """
        path = tf.train.latest_checkpoint(self._directory)
        number = int(path.rpartition("-")[2]) if path else 0
        # Before anything is restored, as that is an exchange with the other workers.
        require_agreement(
            number, self._strategy, what=f"The number of the latest checkpoint in {self._directory}"
        )
        restored = bool(path) and self._restore(path)
        require_agreement(
            restored, self._strategy, what=f"The number of checkpoints restored from {path}"
        )

    def _restore(self, path: str) -> bool:
        untrained = [variable.numpy() for variable in self._variables]
        try:
            self._manager.checkpoint.restore(path).assert_existing_objects_matched()
        except _UNREACHABLE:
            raise
        except _UNFIT as error:
            _LOGGER.warning(
                "Training starts afresh, as the checkpoint %s is damaged or of another model: %s",
                *(path, str(error).partition("\n")[0]),
            )
            for variable, value in zip(self._variables, untrained, strict=True):
                variable.assign(value)
            vars(self.progress).update(vars(Progress(self.progress.watched)))
            return False
        return True

    def save(self) -> None:
        """Write a checkpoint, then remove the one before."""
        settle(self._variables, self._strategy)
        self._manager.save()


def remove_checkpoints(directory: str) -> None:
    """Remove the checkpoints of a training whose model needs them no more."""
    if tf.io.gfile.exists(directory):
        tf.io.gfile.rmtree(directory)
