"""The moving average of all weights, which is steadier than the weights of any one step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf
import tf_keras


class WeightAverage(tf.Module):
    """An exponential moving average of every float variable of a model.

    Those of batch normalisation included, because its statistics must be of the averaged weights.
    """

    def __init__(self, model: tf_keras.Model, decay: float) -> None:
        """Start from the weights of `model` as they are, in the scope of the current strategy.

        Args:
            model: built.
            decay: of the average, per update, from 0 to 1.
        """
        super().__init__()
        self._decay = decay
        self._averaged = [v for v in model.variables if v.dtype.is_floating]
        self._shadows = [_shadow(variable) for variable in self._averaged]

    def update(self, updates: tf.Tensor) -> None:
        """Move towards the weights of now, in the context of a replica.

        Args:
            updates: of the weights so far, this one included; while there are few, the average is
                of few, as in TensorFlow's `ExponentialMovingAverage`.
        """
        updates = tf.cast(updates, tf.float32)
        step = 1 - tf.minimum(self._decay, (1 + updates) / (10 + updates))
        for shadow, variable in zip(self._shadows, self._averaged, strict=True):
            # In this form a frozen variable's average is that variable, bit for bit.
            shadow.assign_add(step * (variable.read_value() - shadow))

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the average in the place of the model's weights, for as long as the block lasts."""
        held = [variable.numpy() for variable in self._averaged]
        _assign(self._averaged, [shadow.numpy() for shadow in self._shadows])
        try:
            yield
        finally:
            _assign(self._averaged, held)


def _shadow(variable: tf.Variable) -> tf.Variable:
    """Return a variable that each replica updates on its own, with no exchange between them."""
    # Trained weights are the same on all replicas; statistics of normalisation are of each one's
    # own images, and their mean is what Keras saves.
    local = variable.synchronization == tf.VariableSynchronization.ON_READ
    aggregation = tf.VariableAggregation
    return tf.Variable(
        variable.numpy(),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=aggregation.MEAN if local else aggregation.ONLY_FIRST_REPLICA,
    )


def _assign(variables: list[tf.Variable], values: list[object]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
