"""TensorBoard logs of training: numbers of every step and epoch, pictures, choices, a profile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.contract.machine import process_memory
from pipeline_def.training.tensorboard.event_file import EventFile
from pipeline_def.training.tensorboard.log_pictures import draw_confusion, draw_grid

_VALIDATION = "val_"
_GIB = 2**30


class TrainingLog:
    """Writes logs within a `with` block: `train` and `validation`, and the choices beside them."""

    def __init__(
        self,
        directory: str,
        *,
        profile: range = range(0),
        first_epoch: int = 0,
        first_step: int = 0,
        classes: Sequence[str] = (),
    ) -> None:
        """Log into `directory`, and record a profile of the steps `profile`.

        Args:
            directory: a path or URL; an earlier phase of the training may have written there.
            profile: steps of this phase.
            first_epoch: epochs of earlier phases, from which numbering goes on.
            first_step: steps of earlier phases, likewise.
            classes: name of each class, by its label id.
        """
        self._directory, self._profile, self._classes = directory, profile, classes
        self._first_epoch, self._first_step = first_epoch, first_step
        self._recording = False
        self._whole, self._train, self._validation = self._files = [
            EventFile(os.path.join(directory, part)) for part in ("", "train", "validation")
        ]

    def write(self, values: Mapping[str, float], epoch: int) -> None:
        """Write the metrics of an epoch under the names that Keras gives them, and memory in use.

        Args:
            values: metric → value; those of the eval split begin with `val_`.
            epoch: of this phase, from 1 on.
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
        """Write numbers of consecutive steps.

        Args:
            first_step: of this phase, to which the first number belongs.
            values: `learning_rate`, `loss` and the like → a number for each step.
        """
        tags = [f"batch_{name}" for name in values]
        steps = zip(*(np.asarray(numbers).tolist() for numbers in values.values()), strict=True)
        for step, numbers in enumerate(steps, start=self._first_step + first_step):
            self._train.write_scalars(dict(zip(tags, numbers, strict=True)), step)

    def write_images(self, images: Any, epoch: int, *, labels: Sequence[int] = ()) -> None:
        """Write some training images as the network sees them, side by side.

        Args:
            images: uint8 [n, height, width, 3], a tensor or an array.
            epoch: of this phase.
            labels: of the images, by which they are named.
        """
        grid = draw_grid(np.asarray(images), [self._name(int(label)) for label in labels])
        self._train.write_picture("augmented_images", grid, self._first_epoch + epoch)

    def write_confusion(self, matrix: Any, epoch: int) -> None:
        """Write the confusion matrix of the eval split.

        Args:
            matrix: counts [classes, classes]; a row is what an image is, a column what it is taken
                for.
            epoch: of this phase, from 1 on.
        """
        counts: npt.NDArray[np.int64] = np.asarray(matrix, np.int64)
        names = [self._name(label) for label in range(len(counts))]
        picture = draw_confusion(counts, names)
        self._validation.write_picture("confusion", picture, self._first_epoch + epoch)

    def write_hyperparameters(
        self, config: Mapping[str, Any], metrics: Mapping[str, float]
    ) -> None:
        """Write the choices of this training and what came out, for the tab HPARAMS.

        Args:
            config: section → field → value, or the fields themselves.
            metrics: metric → its value at the end.
        """
        # Half a second, which an earlier import would add to the time before the first step.
        from tensorboard.plugins.hparams import api

        message = api.hparams_pb(dict(_flatten(config)))
        # TensorBoard has messages of its own, which are the same on the wire.
        summary = tf.compat.v1.Summary.FromString(message.SerializeToString())
        self._whole.write_summary(summary, 0)
        final = {f"final/{name}": value for name, value in metrics.items()}
        self._whole.write_scalars(final, self._first_epoch)

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

    def _name(self, label: int) -> str:
        return self._classes[label] if label < len(self._classes) else str(label)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._recording:
            self._stop_recording()
        for file in self._files:
            file.close()


def _memory() -> dict[str, float]:
    """Return tag → GiB in use: by this process, and on each GPU."""
    values = {"memory_gib/process": process_memory() / _GIB}
    # Logical devices would be those of other workers, too.
    for number in range(len(tf.config.get_visible_devices("GPU"))):
        name = f"GPU:{number}"
        usage = tf.config.experimental.get_memory_info(name)
        values |= {f"memory_gib/{name}/{kind}": size / _GIB for kind, size in usage.items()}
    return values


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield `section.field` and its value, as one of the types that the tab HPARAMS knows."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            known = isinstance(value, bool | int | float | str)
            yield f"{prefix}{name}", value if known else _say(value)


def _say(value: object) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
