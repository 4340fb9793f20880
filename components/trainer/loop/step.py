"""A training step on one replica: augment, forward, backward, update; and its optimizer."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from components.trainer.config.input import AugmentationConfig
from components.trainer.config.training import TrainingConfig
from components.trainer.input.augment import augment
from components.trainer.loop.metrics import SplitMetrics

# After Page (2018), whose recipe this optimizer is for.
_MOMENTUM = 0.85
# Epochs over which the learning rate rises from zero. Adam adapts its step size, while large rates
# of SGD, and weights that were trained before, need it.
_WARMUP_EPOCHS = {"adam": 0, "adamw": 1, "sgd": 2}


class Step:
    """A step of a replica on its part of the batch."""

    def __init__(
        self,
        model: tf_keras.Model,
        *,
        config: TrainingConfig,
        augmentation: AugmentationConfig | None,
        batch_size: int,
        steps: int,
        class_weights: Sequence[float] | None = None,
    ) -> None:
        """Prepare to train in the scope of the current strategy.

        Args:
            model: from uint8 images, or features, to logits, built in the same scope.
            config: of the training, or of this phase of it.
            augmentation: of the images in each step; None for features.
            batch_size: images per step, over all replicas.
            steps: per epoch.
            class_weights: factors for the loss of each class; None: 1.
        """
        self.model, self.config, self.augmentation = model, config, augmentation
        self.batch_size, self.steps, self._class_weights = batch_size, steps, class_weights
        self._classes: int = model.output_shape[-1]
        self._replicas = tf.distribute.get_strategy().num_replicas_in_sync
        self._variables = model.trainable_variables
        self.schedule = Schedule(config, steps=steps)
        self._smoothing = tf.Variable(tf.zeros([2]), trainable=False)
        self.optimizer = make_optimizer(config, self._variables, schedule=self.schedule)
        self.train, self.evaluation = SplitMetrics(self._classes), SplitMetrics(self._classes)
        self._spread_labels()

    @property
    def checkpointed(self) -> dict[str, Any]:
        """Everything with variables, by its name in checkpoints."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "train": self.train,
            "evaluation": self.evaluation,
        }

    def tune(self, config: TrainingConfig, steps: int) -> None:
        """Go on with other `steps` per epoch and values of what `erase_tuned` erases."""
        self.config, self.steps = config, steps
        self.schedule.plan(config, steps=steps)
        if config.weight_decay:
            inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
            inner.weight_decay.assign(config.weight_decay)
        self._spread_labels()

    def _spread_labels(self) -> None:
        """Set the parts of a smoothed label that stay, and that go to each class."""
        smoothing = self.config.label_smoothing
        self._smoothing.assign([1 - smoothing, smoothing / self._classes])

    def update(self, images: tf.Tensor, labels: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Update the weights once, in the context of a replica.

        Args:
            images: the replica's part of the batch, or its features.
            labels: int64 [batch].
            number: of the step, int64; seeds the augmentation.

        Returns:
            The replica's part of the loss, float32, which over all replicas sums to the mean of the
            batch.
        """
        gradients, losses, logits = self._gradients(self._augment(images, number), labels)
        self.train.update(losses, labels, logits)
        self._apply(gradients)
        return tf.reduce_sum(losses) / self.batch_size

    def evaluate(self, images: tf.Tensor, labels: tf.Tensor) -> None:
        """Add a batch to the metrics of evaluation, with the plain cross-entropy as loss."""
        logits = tf.cast(self.model(images, training=False), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        self.evaluation.update(losses, labels, logits)

    def _augment(self, images: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        if self.augmentation is None:
            return images
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
        seed = tf.constant(self.config.seed, tf.int64)
        seeds = tf.stack([seed, number * self._replicas + replica])
        return augment(images, seed=seeds, config=self.augmentation)

    def _gradients(
        self, images: tf.Tensor, labels: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """Return gradients of the replica's part of the loss, losses [batch] and logits."""
        with tf.GradientTape() as tape:
            # A network of the user may compute its last layer in half precision.
            logits = tf.cast(self.model(images, training=True), tf.float32)
            losses = self._losses(labels, logits)
            # Regularizers and `add_loss` of the user's layers: the same for every image.
            if added := self.model.losses:
                losses += sum(tf.reduce_mean(tf.cast(loss, tf.float32)) for loss in added)
            # Gradients are summed over replicas.
            loss = tf.reduce_sum(losses) / self.batch_size
            if self.config.precision == "float16":
                loss = self.optimizer.get_scaled_loss(loss)
        # Unused layers of a network have no gradient.
        unconnected = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(loss, self._variables, unconnected_gradients=unconnected)
        return [tf.convert_to_tensor(gradient) for gradient in gradients], losses, logits

    def _losses(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Return the loss of each image."""
        if self.config.label_smoothing:
            kept, spread = tf.unstack(self._smoothing)
            targets = tf.one_hot(labels, self._classes) * kept + spread
            losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
        else:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        if self._class_weights is None:
            return losses
        return losses * tf.gather(tf.constant(self._class_weights, tf.float32), labels)

    def _apply(self, gradients: list[tf.Tensor]) -> None:
        """Update the weights with the gradients of the whole batch."""
        if self._replicas > 1:
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        if self.config.precision == "float16":
            gradients = self.optimizer.get_unscaled_gradients(gradients)
        self.optimizer.apply_gradients(
            zip(gradients, self._variables, strict=True), skip_gradients_aggregation=True
        )


def erase_tuned(config: TrainingConfig) -> TrainingConfig:
    """Return the configuration without what `Step.tune` can change.

    Trainings that have the rest in common can share a compiled step.
    """
    return dataclasses.replace(
        config,
        learning_rate=1.0,
        epochs=1,
        patience=1,
        keep="best",
        weight_decay=float(config.weight_decay > 0),
        label_smoothing=0.5 * (config.label_smoothing > 0),
    )


def find_state(step: Step) -> list[tuple[tf.Variable, npt.NDArray[np.generic]]]:
    """Return the variables of a step but its model, with their values."""
    parts = {name: part for name, part in step.checkpointed.items() if name != "model"}
    # The list of an optimizer with loss scaling is incomplete, and a view holds its root weakly.
    root = tf.train.Checkpoint(**parts)
    tracked = tf.train.TrackableView(root).descendants()
    return [(part, part.numpy()) for part in tracked if hasattr(part, "assign")]


class Schedule(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate as a pure function of the step: warm-up, then down to zero.

    The number of steps in a checkpoint is therefore all that is needed to resume it. Peak and
    lengths are in a variable: a compiled step serves trainings that differ in them.
    """

    def __init__(self, config: TrainingConfig, *, steps: int) -> None:
        """Plan `config.epochs` of `steps` steps each, in the scope of the current strategy."""
        self._optimizer = config.optimizer
        self._plan = tf.Variable(tf.zeros([3]), trainable=False)
        self.plan(config, steps=steps)

    def plan(self, config: TrainingConfig, *, steps: int) -> None:
        """Plan other epochs and another peak."""
        total = config.epochs * steps
        # At most half of a training that is shorter than its recipe intended.
        warmup = min(_WARMUP_EPOCHS[config.optimizer] * steps, total // 2)
        self._plan.assign([config.learning_rate, warmup, total])

    def __call__(self, step: Any) -> tf.Tensor:
        """Return the learning rate, float32, of update number `step`, from 0 on."""
        step = tf.cast(step, tf.float32)
        peak, warmup, total = tf.unstack(self._plan)
        done = tf.clip_by_value((step - warmup) / tf.maximum(total - warmup, 1.0), 0.0, 1.0)
        rising = tf.minimum((step + 1) / tf.maximum(warmup, 1.0), 1.0)
        falling = 1 - done if self._optimizer == "sgd" else (1 + tf.cos(math.pi * done)) / 2
        return peak * rising * falling


def make_optimizer(
    config: TrainingConfig, variables: Sequence[tf.Variable], *, schedule: Any
) -> tf_keras.optimizers.Optimizer:
    """Return the configured optimizer, built for the trainable `variables`.

    Weight decay is decoupled from the gradient (Loshchilov and Hutter, 2019), for sgd too. It skips
    variables with one axis: biases, and scales and offsets of normalization.
    """
    decay = config.weight_decay or None
    optimizers = tf_keras.optimizers
    if config.optimizer == "sgd":
        optimizer = optimizers.SGD(schedule, _MOMENTUM, nesterov=True, weight_decay=decay)
    else:
        # With weight decay this is AdamW; Keras's class of that name requires one.
        optimizer = optimizers.Adam(schedule, weight_decay=decay)
    undecayed = [variable for variable in variables if len(variable.shape) <= 1]
    optimizer.exclude_from_weight_decay(var_list=undecayed)
    optimizer.build(variables)
    if decay:
        # Keras only reads it: another training with the same compiled step assigns its own.
        optimizer.weight_decay = tf.Variable(decay, trainable=False, dtype=tf.float32)
    if config.precision == "float16":
        # When a gradient overflows, it halves the scale and skips the update, but counts the step.
        return tf_keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer
