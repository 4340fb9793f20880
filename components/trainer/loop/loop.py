"""The training loop: epochs, evaluation, checkpoints and early stopping.

Keras's `fit` can neither resume in the middle of an epoch with the next examples, nor measure how
long a step waited for them. `steps/step.py` has the training step, `steps/step_loop.py` runs many
of them in one call.
"""

import contextlib
import functools
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.model_files import INPUT_WAIT_FRACTION, LEARNING_RATE, RATE
from components.host.progress import report_epoch, report_progress
from components.trainer.config.training import TrainingConfig
from components.trainer.input.host_calls import sharing_captured
from components.trainer.loop.checkpoint import Checkpoints, Progress
from components.trainer.loop.distribution.workers import mean_of_workers, sync_replicas
from components.trainer.loop.log import TrainingLog
from components.trainer.loop.step import Step
from components.trainer.loop.step_loop import Pace, StepLoop

_LOGGER = logging.getLogger(__name__)

# The first steps are slower than the others: they trace the graph and fill buffers.
_PROFILE_AFTER = 10

ReadBatches = Callable[[int, tf.distribute.InputContext], tf.data.Dataset]
"""From the number of steps done so far and the context of an input pipeline to its endless
batches, one for each replica and step."""


class TrainingLoop:
    """Trains a model, and leaves it with the weights of the best epoch, if its loss is finite."""

    def __init__(self, step: Step) -> None:
        """Repeat `step`, made in the scope of the current `tf.distribute.Strategy`."""
        self._strategy = tf.distribute.get_strategy()
        self.step, self._steps = step, step.steps
        self._run = StepLoop(step.update, lambda: step.schedule(step.optimizer.iterations))
        self._pace = Pace()
        self._evaluate = tf.function(self._evaluate_replicas, autograph=False)
        self._last_epoch, self._save_after, self._stopped = 0, 0.0, False
        self._stop: Callable[[Progress], bool] | None = None
        self._on_epoch: Callable[[], None] | None = None

    def share_evaluation(self, other: "TrainingLoop") -> None:
        """Evaluate with the compiled function of another loop, if that is of the same model."""
        if other.step.model is self.step.model:
            self.step.evaluation, self._evaluate = other.step.evaluation, other._evaluate

    @property
    def _config(self) -> TrainingConfig:
        return self.step.config

    @property
    def profiled_steps(self) -> range:
        """The steps of this phase that `TrainingLog` should profile."""
        steps = self._config.profile_steps
        # A short training profiles its last steps.
        first = max(0, min(_PROFILE_AFTER, self._config.epochs * self._steps - steps))
        return range(first, first + steps)

    def fit(
        self,
        read: ReadBatches,
        evaluation: Callable[[], tf.data.Dataset] | None,
        *,
        log: TrainingLog,
        checkpoint_dir: str,
        last_epoch: int = 0,
        stop: Callable[[Progress], bool] | None = None,
        save_after: float = 0.0,
        on_epoch: Callable[[], None] | None = None,
    ) -> Progress:
        """Train from the latest checkpoint, if any; a completed training runs no further step.

        Training that diverges stops at once, with an epoch whose metrics on the eval split are NaN.

        Args:
            read: returns the training batches.
            evaluation: returns every example of the eval split; None: there are none.
            log: open, and made with `profiled_steps`.
            checkpoint_dir: keeps the last checkpoint until the model is exported.
            last_epoch: ends the training instead of `evaluation`, and its weights are kept.
            stop: called after each epoch; training returns if it is true. A later call goes on
                from the checkpoint, with the same schedule.
            save_after: least seconds between checkpoints, but for the last one.
            on_epoch: called after each epoch, with the weights that are evaluated. Training then
                runs all epochs, keeps the last weights, and writes no checkpoints.

        Returns:
            The completed training. Its history has `loss` as minimized, `accuracy` and
            `balanced_accuracy` on the augmented training images; `val_loss`, the plain
            cross-entropy, `val_accuracy` and `val_balanced_accuracy` on the eval split, with the
            averaged weights if `training.ema` is on; `images_per_second`; `input_wait_fraction`,
            the fraction of step time spent waiting for input; the last `learning_rate`.
        """
        self._last_epoch, self._save_after, self._on_epoch = last_epoch, save_after, on_epoch
        self._stop, self._stopped = stop, False
        self.epoch_ends: list[float] = []
        checkpoints = self._make_checkpoints(checkpoint_dir)
        checkpoints.restore()
        progress = checkpoints.progress
        if progress.fit_epoch(self._steps) and not self._is_over(progress):
            _LOGGER.warning(
                "The number of replicas has changed, so epochs have %d steps now: training resumes "
                "at about the same image, and its weights will differ.",
                self._steps,
            )
            # The learning rate follows from it.
            self.step.optimizer.iterations.assign(self._steps_done(progress))
        if not self._is_over(progress):
            self._train(read, evaluation and evaluation(), checkpoints, log)
        if progress.best_epoch and not on_epoch:
            self.step.model.set_weights(progress.best_weights)
        # The progress outlives the phase; this copy of the model need not.
        progress.best_weights.clear()
        return progress

    def _make_checkpoints(self, directory: str) -> Checkpoints:
        step = self.step
        parts = {
            "model": step.model,
            "optimizer": step.optimizer,
            "train": step.train,
            "evaluation": step.evaluation,
        }
        if step.average:
            parts["average"] = step.average
        if step.margins:
            parts["margins"] = step.margins
        return Checkpoints(directory, parts, watched=f"val_{self._config.metric}")

    def _train(
        self,
        read: ReadBatches,
        evaluation: tf.data.Dataset | None,
        checkpoints: Checkpoints,
        log: TrainingLog,
    ) -> None:
        """Train from the restored step to the end."""
        progress, every = checkpoints.progress, self._config.checkpoint_steps
        first = self._steps_done(progress)
        read_part = functools.partial(read, first)
        distributed = self._strategy.distribute_datasets_from_function(read_part)
        with sharing_captured():
            batches = iter(distributed)
        # Distributing copies all pixels.
        if evaluation is not None and self._strategy.num_replicas_in_sync > 1:
            evaluation = self._strategy.experimental_distribute_dataset(evaluation)
        saved = time.perf_counter()
        while not self._is_over(progress):
            self._run_steps(batches, progress, log)
            over = progress.diverged or progress.steps == self._steps
            if over:
                self._end_epoch(evaluation, progress, log)
                self.epoch_ends.append(time.perf_counter())
                self._stopped = bool(self._stop and self._stop(progress))
            due = over or (every and self._steps_done(progress) % every == 0)
            late = time.perf_counter() - saved >= self._save_after or self._is_over(progress)
            if due and late and not self._on_epoch:
                checkpoints.save()
                saved = time.perf_counter()

    def _is_over(self, progress: Progress) -> bool:
        return self._stopped or self.is_complete(progress)

    def is_complete(self, progress: Progress) -> bool:
        """Return whether no further call would train any more."""
        patient = self._last_epoch or self._on_epoch or self._config.keep == "last"
        out_of_patience = progress.epochs_since_best >= self._config.patience and not patient
        last = self._last_epoch or self._config.epochs
        return progress.diverged or out_of_patience or progress.epochs >= last

    def _steps_done(self, progress: Progress) -> int:
        return progress.epochs * self._steps + progress.steps

    def _run_steps(self, batches: Any, progress: Progress, log: TrainingLog) -> None:
        """Run the steps of one call."""
        first = self._steps_done(progress)
        count = self._pace.steps(self._uninterrupted_steps(first))
        started = time.perf_counter()
        with log.step(first):
            steps = self._run(batches, first, count)
        seconds = time.perf_counter() - started
        self._pace.record(count, mean_of_workers(seconds, self._strategy))
        progress.steps += count
        progress.seconds += seconds
        progress.waited += steps.waited
        # Loss scaling repairs an overflow, unless it has reached statistics of normalization.
        progress.diverged = not math.isfinite(steps.losses[-1]) and not self._is_finite()
        log.write_steps(first, {"learning_rate": steps.learning_rates, "loss": steps.losses})
        if self.step.augmentation and first + count == self._steps:
            log.write_images(steps.images)
        if progress.steps < self._steps:
            note = f"loss {steps.losses[-1]:.3f} {count * self.step.batch_size / seconds:,.0f}/s"
            done = self._steps_done(progress) / self._steps
            report_progress(done=done, total=self._config.epochs, unit="epochs", note=note)

    def _uninterrupted_steps(self, first: int) -> int:
        """Return the number of steps until Python has something to do."""
        ends = [self._steps - first % self._steps]
        if every := self._config.checkpoint_steps:
            ends.append(every - first % every)
        profiled = self.profiled_steps
        if first in profiled:
            return 1
        if first < profiled.start:
            ends.append(profiled.start - first)
        return min(ends)

    def _end_epoch(self, evaluation: Any, progress: Progress, log: TrainingLog) -> None:
        step = self.step
        sync_replicas(step.model.variables, self._strategy)
        with step.average.in_place() if step.average else contextlib.nullcontext():
            # Metrics of no images are NaN.
            with sharing_captured():
                batches = iter(() if progress.diverged or evaluation is None else evaluation)
            for images, labels in batches:
                self._evaluate(images, labels)
            values = step.train.result()
            values |= {f"val_{name}": v for name, v in step.evaluation.result().items()}
            values[RATE] = progress.steps * step.batch_size / progress.seconds
            values[INPUT_WAIT_FRACTION] = progress.waited / progress.seconds
            values[LEARNING_RATE] = float(step.schedule(self._steps_done(progress) - 1))
            if self._on_epoch and not progress.diverged:
                self._on_epoch()
            usable = evaluation is None or math.isfinite(values["val_loss"])
            keep = bool(self._last_epoch) or (self._config.keep == "last" and usable)
            progress.end_epoch(values, step.model, keep=keep)
        if not math.isfinite(values["val_loss"]):
            progress.diverged |= not math.isfinite(values["loss"]) or not self._is_finite()
        log.write(values, progress.epochs)
        step.train.reset()
        step.evaluation.reset()
        report_epoch(values, epoch=progress.epochs, epochs=self._config.epochs)

    def _is_finite(self) -> bool:
        """Return whether all weights and statistics of the model are finite."""
        floats = (v.numpy() for v in self.step.model.variables if v.dtype.is_floating)
        return all(np.isfinite(values).all() for values in floats)

    def _evaluate_replicas(self, images: Any, labels: Any) -> None:
        self._strategy.run(self.step.evaluate, (images, labels))
