"""TensorBoard logs of training: the metrics of every epoch, and a profile of a few steps."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Self

import tensorflow as tf

_VALIDATION = "val_"


class TrainingLog:
    """Writes logs within a `with` block."""

    def __init__(self, directory: str, *, profile: range) -> None:
        """Log into `directory`, and record a profile of the steps `profile`."""
        self._directory = directory
        self._profile = profile
        self._recording = False
        self._train, self._validation = (
            tf.summary.create_file_writer(os.path.join(directory, part))
            for part in ("train", "validation")
        )

    def write(self, values: Mapping[str, float], epoch: int) -> None:
        """Write the metrics of an epoch, under the names that Keras gives them."""
        for name, value in values.items():
            part = self._validation if name.startswith(_VALIDATION) else self._train
            with part.as_default():
                tf.summary.scalar(f"epoch_{name.removeprefix(_VALIDATION)}", value, step=epoch)
        self._train.flush()
        self._validation.flush()

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Record the step within this block, if it is one of those to be profiled."""
        if number not in self._profile:
            yield
            return
        if not self._recording:
            tf.profiler.experimental.start(self._directory)
            self._recording = True
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            yield
        if number == self._profile[-1]:
            self._stop_recording()

    def _stop_recording(self) -> None:
        tf.profiler.experimental.stop()
        self._recording = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._recording:
            self._stop_recording()
        self._train.close()
        self._validation.close()
