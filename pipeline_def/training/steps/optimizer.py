"""The optimizer of a training and its learning rate, which is a function of the step alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from pipeline_def.config.training import TrainingConfig

# He et al. (2016) divide by ten whenever the error no longer falls; at these parts of a training.
_DROPS = (0.5, 0.75, 0.9)


class Schedule(tf_keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate at each step: warm-up, then `training.schedule`.

    A pure function of the step, so that the number of steps in a checkpoint is all that is needed
    to go on.
    """

    def __init__(self, config: TrainingConfig, *, steps: int) -> None:
        """Plan `config.epochs` of `steps` steps each."""
        self._peak, self._kind = config.learning_rate, config.schedule
        self._total = config.epochs * steps
        # At most half of a training that was made shorter than its recipe had in mind.
        self._warmup = min(round(config.warmup_epochs * steps), self._total // 2)

    def __call__(self, step: Any) -> tf.Tensor:
        """Return the learning rate, float32, of the update after `step` others."""
        step = tf.cast(step, tf.float32)
        falling = max(self._total - self._warmup, 1)
        done = tf.clip_by_value((step - self._warmup) / falling, 0.0, 1.0)
        rising = tf.minimum((step + 1) / max(self._warmup, 1), 1.0)
        return self._peak * rising * self._fraction(step, done)

    def _fraction(self, step: tf.Tensor, done: tf.Tensor) -> tf.Tensor:
        """Return the part of the largest rate; `done` is the part of the time after warm-up."""
        if self._kind == "cosine":
            return (1 + tf.cos(math.pi * done)) / 2
        if self._kind == "linear":
            return 1 - done
        if self._kind == "step":
            drops = tf.cast(step >= tf.constant(_DROPS) * self._total, tf.float32)
            return 0.1 ** tf.reduce_sum(drops)
        return tf.ones([])


def make_optimizer(
    config: TrainingConfig, variables: Sequence[tf.Variable], *, schedule: Schedule
) -> tf_keras.optimizers.Optimizer:
    """Return the optimizer that `config` asks for, built for `variables`.

    Weight decay is decoupled from the gradient (Loshchilov and Hutter, 2019), for sgd too. It
    spares variables of one axis: biases, and the scales and offsets of normalisation.

    Args:
        config: of the training.
        variables: that are to be trained.
        schedule: of the learning rate.
    """
    decay = config.weight_decay or None
    optimizers = tf_keras.optimizers
    if config.optimizer == "sgd":
        optimizer = optimizers.SGD(
            schedule, momentum=config.momentum, nesterov=config.momentum > 0, weight_decay=decay
        )
    else:
        # With weight decay this is AdamW, which in Keras cannot do without.
        optimizer = optimizers.Adam(schedule, weight_decay=decay)
    spared = [variable for variable in variables if len(variable.shape) <= 1]
    optimizer.exclude_from_weight_decay(var_list=spared)
    optimizer.build(variables)
    if config.precision == "float16":
        # It halves the scale and leaves an update out when a gradient overflows, and counts the
        # step all the same.
        return tf_keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer
