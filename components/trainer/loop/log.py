"""TensorBoard logs of training: metrics of epochs and some steps."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

_VALIDATION = "val_"
# TensorBoard shows training as it runs, but a bucket should be written to at most this often.
_FLUSH_SECONDS = 30
_MOST_WAITING = 10_000
# A step of a small network takes a millisecond, and writing a number half of one.
_EVERY = 100


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
        step = self._first_epoch + epoch
        ours = {name: value for name, value in values.items() if not name.startswith(_VALIDATION)}
        others = {name.removeprefix(_VALIDATION): values[name] for name in values.keys() - ours}
        self._write("train", _prefix("epoch_", ours), step)
        self._write("validation", _prefix("epoch_", others), step)
        for writer in self._writers.values():
            writer.flush()

    def write_steps(
        self, first_step: int, values: Mapping[str, Sequence[float] | npt.NDArray[np.float64]]
    ) -> None:
        """Write every 100th of the values of consecutive steps, such as `loss` → numbers."""
        first = self._first_step + first_step
        columns = {name: np.asarray(numbers) for name, numbers in values.items()}
        for place in range(-first % _EVERY, len(next(iter(columns.values()))), _EVERY):
            row = {name: float(numbers[place]) for name, numbers in columns.items()}
            self._write("train", _prefix("batch_", row), first + place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def _write(self, part: str, values: Mapping[str, float], step: int) -> None:
        """Write numbers by tag."""
        if values:
            with self._writing(part):
                for tag, value in values.items():
                    tf.summary.scalar(tag, value, step)

    def _writing(self, part: str) -> Any:
        """Return the context that writes into a folder, whose file appears with the first event."""
        if part not in self._writers:
            self._writers[part] = tf.summary.create_file_writer(
                os.path.join(self._directory, part),
                max_queue=_MOST_WAITING,
                flush_millis=_FLUSH_SECONDS * 1000,
            )
        return self._writers[part].as_default()


def _prefix(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}{name}": value for name, value in values.items()}
