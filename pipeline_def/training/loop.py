"""The training loop: steps, epochs, evaluation, early stopping, and how long it waits for input.

A loop of our own, because Keras's `fit` can neither go on in the middle of an epoch with the
examples that come next, nor tell how long a step has waited for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from components.contract.errors import ModelError
from components.contract.model_run import RATE, WAIT_FRACTION
from components.contract.progress import report_progress
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.training import TrainingConfig
from pipeline_def.data.augmentation.augment import augment
from pipeline_def.training.checkpoint import Checkpoints, Progress, remove_checkpoints
from pipeline_def.training.log import TrainingLog

# The first steps are slow, and not like the others: they trace the graph and fill buffers.
_PROFILE_AFTER = 10

ReadBatches = Callable[[int, tf.distribute.InputContext], tf.data.Dataset]
"""From the number of steps that were done before, and the part of the work that one input pipeline
has, to its endless batches, one for each replica and step."""


class TrainingLoop:
    """Trains a model, and leaves it with the weights of its best epoch."""

    def __init__(
        self,
        model: tf_keras.Model,
        *,
        config: TrainingConfig,
        augmentation: AugmentationConfig,
        batch_size: int,
        steps: int,
    ) -> None:
        """Prepare to train in the scope of the current `tf.distribute.Strategy`.

        Args:
            model: from uint8 images to logits, built in the same scope.
            config: of the training.
            augmentation: how images are changed, on the accelerator, in each step.
            batch_size: images per step, on all accelerators together.
            steps: of an epoch.
        """
        self._strategy = tf.distribute.get_strategy()
        self._model, self._config, self._augmentation = model, config, augmentation
        self._batch_size, self._steps = batch_size, steps
        schedule = tf_keras.optimizers.schedules.CosineDecay(
            config.learning_rate, decay_steps=config.epochs * steps
        )
        self._optimizer = tf_keras.optimizers.Adam(schedule)
        self._optimizer.build(model.trainable_variables)
        names = ("loss", "accuracy", "val_loss", "val_accuracy")
        self._metrics = {name: tf_keras.metrics.Mean(name) for name in names}
        # AutoGraph has nothing to convert here, and takes a second to find that out.
        self._train = tf.function(self._train_replicas, autograph=False)
        self._evaluate = tf.function(self._evaluate_replicas, autograph=False)

    def fit(
        self,
        read: ReadBatches,
        evaluation: Callable[[], tf.data.Dataset],
        *,
        log_dir: str,
        checkpoint_dir: str,
    ) -> dict[str, list[float]]:
        """Train, from the latest checkpoint on; not a step if that is of the end of training.

        Args:
            read: gives the batches.
            evaluation: gives every example of the eval split.
            log_dir: of the TensorBoard logs.
            checkpoint_dir: of checkpoints; the last one stays, until the model is exported.

        Returns:
            Metric → its value in every epoch: `loss`, `accuracy`, `val_loss`, `val_accuracy`;
            `images_per_second` of training, and `input_wait_share`, the fraction of the time of
            its steps that was spent waiting for input.

        Raises:
            ModelError: the loss on the eval split was not a number in any epoch.
        """
        checkpoints = Checkpoints(
            checkpoint_dir,
            model=self._model,
            optimizer=self._optimizer,
            metrics=self._metrics,
            strategy=self._strategy,
        )
        checkpoints.restore()
        progress = checkpoints.progress
        if not self._is_over(progress):
            self._train_on(read, evaluation(), checkpoints, log_dir)
        if not progress.best_epoch:
            remove_checkpoints(checkpoint_dir)
            raise ModelError(
                f"The loss on the eval split was not a finite number in any of {progress.epochs} "
                f"epochs: lower training.learning_rate, which is {self._config.learning_rate:g}."
            )
        self._model.set_weights(progress.best_weights)
        return progress.history

    def _train_on(
        self, read: ReadBatches, evaluation: tf.data.Dataset, checkpoints: Checkpoints, log_dir: str
    ) -> None:
        """Train from the restored step to the end of training."""
        progress, every = checkpoints.progress, self._config.checkpoint_steps
        step = int(self._optimizer.iterations.numpy())
        batches = iter(self._distribute(read, step))
        with TrainingLog(log_dir, profile=self._profiled_steps(step)) as logs:
            while not self._is_over(progress):
                with logs.step(step):
                    self._timed_step(batches, step, progress)
                step += 1
                if step % self._steps == 0:
                    self._end_epoch(evaluation, progress, logs)
                if step % self._steps == 0 or (every and step % every == 0):
                    checkpoints.save()

    def _distribute(self, read: ReadBatches, step: int) -> Any:
        return self._strategy.distribute_datasets_from_function(lambda part: read(step, part))

    def _profiled_steps(self, first: int) -> range:
        steps = self._config.profile_steps
        # In a short training, its last ones.
        start = min(first + _PROFILE_AFTER, self._config.epochs * self._steps - steps)
        return range(max(first, start), max(first, start) + steps)

    def _is_over(self, progress: Progress) -> bool:
        out_of_patience = progress.epochs_since_best >= self._config.patience
        return out_of_patience or progress.epochs >= self._config.epochs

    def _timed_step(self, batches: Any, step: int, progress: Progress) -> None:
        """Run a step and wait for its end.

        Otherwise the next batch would seem late while the accelerator is still at work.
        """
        started = time.perf_counter()
        images, labels = next(batches)
        fed = time.perf_counter()
        self._train(images, labels, tf.constant(step, tf.int64)).numpy()
        progress.steps += 1
        progress.seconds += time.perf_counter() - started
        progress.waited += fed - started

    def _end_epoch(
        self, evaluation: tf.data.Dataset, progress: Progress, logs: TrainingLog
    ) -> None:
        for images, labels in self._strategy.experimental_distribute_dataset(evaluation):
            self._evaluate(images, labels)
        values = {name: float(metric.result()) for name, metric in self._metrics.items()}
        for metric in self._metrics.values():
            metric.reset_state()
        values[RATE] = progress.steps * self._batch_size / progress.seconds
        values[WAIT_FRACTION] = progress.waited / progress.seconds
        progress.end_epoch(values, self._model)
        logs.write(values, progress.epochs)
        note = (
            f"accuracy {values['accuracy']:.3f}, on eval {values['val_accuracy']:.3f}; "
            f"{values[RATE]:,.0f} images/s, {values[WAIT_FRACTION]:.0%} of it waiting for input"
        )
        report_progress(done=progress.epochs, total=self._config.epochs, unit="epochs", note=note)

    def _train_replicas(self, images: Any, labels: Any, step: tf.Tensor) -> tf.Tensor:
        losses = self._strategy.run(self._train_replica, (images, labels, step))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def _train_replica(self, images: tf.Tensor, labels: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        number = step * context.num_replicas_in_sync + tf.cast(
            context.replica_id_in_sync_group, tf.int64
        )
        images, targets = augment(
            images,
            labels,
            seed=tf.stack([tf.constant(self._config.seed, tf.int64), number]),
            config=self._augmentation,
            classes=self._model.output_shape[-1],
        )
        with tf.GradientTape() as tape:
            logits = self._model(images, training=True)
            losses = _cross_entropy(targets, logits)
            # Replicas add up their gradients.
            loss = tf.reduce_sum(losses) / self._batch_size
        variables = self._model.trainable_variables
        gradients = tape.gradient(loss, variables)
        self._optimizer.apply_gradients(zip(gradients, variables, strict=True))
        self._metrics["loss"].update_state(losses)
        self._metrics["accuracy"].update_state(_hits(labels, logits))
        return loss

    def _evaluate_replicas(self, images: Any, labels: Any) -> None:
        self._strategy.run(self._evaluate_replica, (images, labels))

    def _evaluate_replica(self, images: tf.Tensor, labels: tf.Tensor) -> None:
        logits = self._model(images, training=False)
        self._metrics["val_loss"].update_state(_cross_entropy(labels, logits))
        self._metrics["val_accuracy"].update_state(_hits(labels, logits))


def _cross_entropy(targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the loss of each example; targets are label ids, or fractions of each class."""
    if targets.dtype.is_integer:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    return tf.nn.softmax_cross_entropy_with_logits(targets, logits)


def _hits(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.equal(labels, tf.argmax(logits, axis=1)), tf.float32)
