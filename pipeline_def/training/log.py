"""TensorBoard logs of training: metrics of every step and epoch, pictures, options, a profile.

Event files are written by hand: a step of a small network takes a millisecond, `tf.summary.scalar`
0.46 ms, and an event here 0.005 ms. Source of the format: tensorflow/core/util/event.proto and
tensorflow/core/util/events_writer.cc.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import simplejpeg
import tensorflow as tf

from components.host.machine import process_memory

_VALIDATION = "val_"
_GIB = 2**30
# TensorBoard shows training as it runs, but a bucket should be written to at most this often.
_FLUSH_SECONDS = 30.0
_VERSION = "brain.Event:2"
_QUALITY = 95
_COLUMNS = 8


class TrainingLog:
    """Logs in the folders `train` and `validation`, and the options beside them.

    Use it as a context manager.
    """

    def __init__(
        self,
        directory: str,
        *,
        profile: range = range(0),
        first_epoch: int = 0,
        first_step: int = 0,
    ) -> None:
        """Log into `directory`, a path or URL, and record a profile of the steps `profile`.

        A further phase continues the numbers of epochs and steps from `first_epoch` and
        `first_step`.
        """
        self._directory, self._profile = directory, profile
        self._first_epoch, self._first_step = first_epoch, first_step
        self._recording = False
        self._options, self._train, self._validation = self._files = [
            _EventFile(os.path.join(directory, part)) for part in ("", "train", "validation")
        ]

    def write(self, values: Mapping[str, float], epoch: int) -> None:
        """Write the metrics of an epoch, from 1 on, under Keras's names, and the memory in use.

        Metrics of the eval split begin with `val_`.
        """
        step = self._first_epoch + epoch
        for name, value in values.items():
            file = self._validation if name.startswith(_VALIDATION) else self._train
            file.write_scalars({f"epoch_{name.removeprefix(_VALIDATION)}": value}, step)
        self._train.write_scalars(_memory(), step)
        for file in self._files:
            file.flush()

    def write_steps(
        self, first_step: int, values: Mapping[str, Sequence[float] | npt.NDArray[np.float64]]
    ) -> None:
        """Write values of consecutive steps, such as `loss` → a number for each step."""
        tags = [f"batch_{name}" for name in values]
        steps = zip(*(np.asarray(numbers).tolist() for numbers in values.values()), strict=True)
        for step, numbers in enumerate(steps, start=self._first_step + first_step):
            self._train.write_scalars(dict(zip(tags, numbers, strict=True)), step)

    def write_images(self, images: Any) -> None:
        """Write images of the first epoch as the network sees them, uint8 [n, height, width, 3].

        They are side by side, up to eight in a row.
        """
        images = np.asarray(images)
        columns = min(_COLUMNS, len(images))
        rows = np.split(images[: len(images) // columns * columns], len(images) // columns)
        grid = np.concatenate([np.concatenate(row, axis=1) for row in rows])
        height, width, channels = grid.shape
        picture = tf.compat.v1.Summary.Image(
            height=height,
            width=width,
            colorspace=channels,
            encoded_image_string=simplejpeg.encode_jpeg(grid, quality=_QUALITY),
        )
        value = tf.compat.v1.Summary.Value(tag="augmented_images", image=picture)
        self._train.write_summary(tf.compat.v1.Summary(value=[value]), self._first_epoch + 1)

    def write_hyperparameters(
        self, config: Mapping[str, Any], metrics: Mapping[str, float]
    ) -> None:
        """Write options (section → field → value) and final metrics for the HPARAMS tab."""
        # Takes half a second, which should not delay the first step.
        from tensorboard.plugins.hparams import api

        message = api.hparams_pb(dict(_flatten(config)))
        # TensorBoard's own message classes have the same wire format.
        summary = tf.compat.v1.Summary.FromString(message.SerializeToString())
        self._options.write_summary(summary, 0)
        final = {f"final/{name}": value for name, value in metrics.items()}
        self._options.write_scalars(final, self._first_epoch)

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Profile the step within this block, if it is one of the steps to profile."""
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
        for file in self._files:
            file.close()


class _EventFile:
    """An event file in a folder, created with the first event."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._records: tf.io.TFRecordWriter | None = None
        self._flushed = time.monotonic()

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write numbers by tag."""
        numbers = [
            tf.compat.v1.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()
        ]
        self.write_summary(tf.compat.v1.Summary(value=numbers), step)

    def write_summary(self, summary: tf.compat.v1.Summary, step: int) -> None:
        """Write values of any kind."""
        if self._records is None:
            tf.io.gfile.makedirs(self._directory)
            # TensorBoard reads the files of a folder in the order of their names.
            seconds, rest = divmod(time.time_ns(), 10**9)
            unique = f"{seconds:010d}.{rest:09d}.{socket.gethostname()}.{os.getpid()}"
            path = os.path.join(self._directory, f"events.out.tfevents.{unique}")
            self._records = tf.io.TFRecordWriter(path)
            first = tf.compat.v1.Event(wall_time=time.time(), file_version=_VERSION)
            self._records.write(first.SerializeToString())
        event = tf.compat.v1.Event(wall_time=time.time(), step=step, summary=summary)
        self._records.write(event.SerializeToString())
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Make the events visible to readers."""
        self._flushed = time.monotonic()
        if self._records:
            self._records.flush()

    def close(self) -> None:
        if self._records:
            self._records.close()


def _memory() -> dict[str, float]:
    """Return tag → GiB in use by this process and on each GPU."""
    values = {"memory_gib/process": process_memory() / _GIB}
    # Logical devices would include those of other workers.
    for number in range(len(tf.config.get_visible_devices("GPU"))):
        name = f"GPU:{number}"
        usage = tf.config.experimental.get_memory_info(name)
        values |= {f"memory_gib/{name}/{kind}": size / _GIB for kind, size in usage.items()}
    return values


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield `section.field` and its value, as a type that the HPARAMS tab supports."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, bool | int | float | str):
            yield f"{prefix}{name}", value
        else:
            many = isinstance(value, list | tuple)
            yield f"{prefix}{name}", ", ".join(map(str, value)) if many else str(value).lower()
