"""A training step on one replica: augment, forward, backward, update; evaluation; their metrics."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.training import TrainingConfig
from pipeline_def.data.augmentation.augment import augment
from pipeline_def.training.steps.optimizer import Schedule, WeightAverage, make_optimizer

# Augmented images that a step returns, for TensorBoard.
_SHOWN = 16


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
        self.optimizer = make_optimizer(config, self._variables, schedule=self.schedule)
        self.average = WeightAverage(model, config.ema) if config.ema else None
        self.train, self.evaluation = SplitMetrics(self._classes), SplitMetrics(self._classes)
        # Only the network: replicas cannot exchange gradients within compiled code.
        self._differentiate = (
            tf.function(self._gradients, jit_compile=True, autograph=False)
            if config.xla
            else self._gradients
        )

    def update(
        self, images: tf.Tensor, labels: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Update the weights once, in the context of a replica.

        Args:
            images: the replica's part of the batch, or its features.
            labels: int64 [batch].
            number: of the step, int64; seeds the augmentation.

        Returns:
            The replica's part of the loss, float32, which over all replicas sums to the mean of the
            batch; and the first images as the network saw them.
        """
        images, targets = self._augment(images, labels, number)
        gradients, loss = self._accumulate(images, labels, targets)
        self._apply(gradients)
        return loss / self.batch_size, images[:_SHOWN]

    def evaluate(self, images: tf.Tensor, labels: tf.Tensor) -> None:
        """Add a batch to the metrics of evaluation, with the plain cross-entropy as loss."""
        logits = tf.cast(self.model(images, training=False), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        self.evaluation.update(losses, labels, logits)

    def _augment(
        self, images: tf.Tensor, labels: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if self.augmentation is None:
            return images, labels
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
        seed = tf.constant(self.config.seed, tf.int64)
        return augment(
            images,
            labels,
            seed=tf.stack([seed, number * self._replicas + replica]),
            config=self.augmentation,
            classes=self._classes,
        )

    def _accumulate(
        self, images: tf.Tensor, labels: tf.Tensor, targets: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Return gradients and the sum of losses, computed in `training.accumulate` parts.

        If the batch does not divide equally, the sizes of parts differ by one image.
        """
        size = self.batch_size // self._replicas
        parts = min(self.config.accumulate, size)
        if parts == 1:
            return self._compute(images, labels, targets)

        def rows(tensor: tf.Tensor, part: tf.Tensor) -> tf.Tensor:
            first = part * size // parts
            # A constant where possible: a TPU can compile nothing else.
            count = size // parts if size % parts == 0 else (part + 1) * size // parts - first
            start = [first, *[0] * (tensor.shape.rank - 1)]
            return tf.slice(tensor, start, [count, *tensor.shape[1:]])

        def add_part(part: tf.Tensor, sums: Any) -> Any:
            more = self._compute(*(rows(tensor, part) for tensor in (images, labels, targets)))
            return part + 1, tf.nest.map_structure(tf.add, sums, more)

        zeros = ([tf.zeros(v.shape) for v in self._variables], tf.zeros([]))
        _, sums = tf.while_loop(
            lambda part, _: part < parts, add_part, (tf.constant(0), zeros), parallel_iterations=1
        )
        return sums  # type: ignore[no-any-return]

    def _compute(
        self, images: tf.Tensor, labels: tf.Tensor, targets: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        gradients, losses, logits = self._differentiate(images, targets)
        self.train.update(losses, labels, logits)
        return gradients, tf.reduce_sum(losses)

    def _gradients(
        self, images: tf.Tensor, targets: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """Return gradients of the replica's part of the loss, losses [batch] and logits."""
        with tf.GradientTape() as tape:
            # A network of the user may compute its last layer in half precision.
            logits = tf.cast(self.model(images, training=True), tf.float32)
            losses = self._losses(targets, logits)
            # Gradients are summed over replicas and parts.
            loss = tf.reduce_sum(losses) / self.batch_size
            if self.config.precision == "float16":
                loss = self.optimizer.get_scaled_loss(loss)
        # Unused layers of a network have no gradient.
        unconnected = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(loss, self._variables, unconnected_gradients=unconnected)
        return [tf.convert_to_tensor(gradient) for gradient in gradients], losses, logits

    def _losses(self, targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Return the loss of each image; targets are label ids, or a fraction for each class."""
        smoothing = self.config.label_smoothing
        if targets.dtype.is_integer and not smoothing and self._class_weights is None:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
        if targets.dtype.is_integer:
            targets = tf.one_hot(targets, self._classes)
        smooth = targets * (1 - smoothing) + smoothing / self._classes
        losses = tf.nn.softmax_cross_entropy_with_logits(smooth, logits)
        if self._class_weights is None:
            return losses
        return losses * tf.linalg.matvec(targets, tf.constant(self._class_weights, tf.float32))

    def _apply(self, gradients: list[tf.Tensor]) -> None:
        """Update the weights and their average with the gradients of the whole batch."""
        if self._replicas > 1:
            # Not by the optimizer, which would clip the gradients of each replica by themselves.
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        if self.config.precision == "float16":
            gradients = self.optimizer.get_unscaled_gradients(gradients)
        if self.config.clip_norm:
            # A norm that is not finite turns all gradients into NaN, which loss scaling notices.
            gradients, _ = tf.clip_by_global_norm(gradients, self.config.clip_norm)
        self.optimizer.apply_gradients(
            zip(gradients, self._variables, strict=True), skip_gradients_aggregation=True
        )
        if self.average:
            self.average.update(self.optimizer.iterations)


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
