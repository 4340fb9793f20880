"""The optimizer and its learning rate."""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from components.trainer.config.training import TrainingConfig

# After Page (2018), whose recipe this optimizer is for.
_MOMENTUM = 0.85
# Epochs over which the learning rate rises from zero. Adam adapts its step size, while large rates
# of SGD, and weights that were trained before, need it.
_WARMUP_EPOCHS = {"adam": 0, "adamw": 1, "sgd": 2}


class Schedule(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate as a pure function of the step: warm-up, then down to zero.

    The number of steps in a checkpoint is therefore all that is needed to resume it. Peak and
    lengths are in a variable: a compiled step serves trainings that differ in them.
    """

    def __init__(self, config: TrainingConfig, *, steps: int) -> None:
        """Plan `config.epochs` of `steps` steps each, in the scope of the current strategy."""
        self._optimizer, self._steps = config.optimizer, steps
        self._plan = tf.Variable(tf.zeros([3]), trainable=False)
        self.plan(config)

    def plan(self, config: TrainingConfig) -> None:
        """Plan other epochs and another peak."""
        total = config.epochs * self._steps
        # At most half of a training that is shorter than its recipe intended.
        warmup = min(_WARMUP_EPOCHS[config.optimizer] * self._steps, total // 2)
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
