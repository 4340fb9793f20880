from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

from pipeline_def.training.steps.ema import WeightAverage


def dense() -> tf_keras.Model:
    return tf_keras.Sequential([tf_keras.layers.Dense(2, input_shape=[3])])


def test_the_average_follows_the_weights() -> None:
    model = dense()
    kernel, bias = model.variables
    kernel.assign(tf.zeros([3, 2]))
    average = WeightAverage(model, decay=0.4)
    expected = 0.0
    for update, value in enumerate([1.0, 2.0, 4.0, 8.0, 16.0], start=1):
        kernel.assign(tf.fill([3, 2], value))
        average.update(tf.constant(update, tf.int64))
        decay = min(0.4, (1 + update) / (10 + update))
        expected = decay * expected + (1 - decay) * value
    with average.in_place():
        np.testing.assert_allclose(kernel, expected, rtol=1e-6)
        np.testing.assert_array_equal(bias, 0.0)
    np.testing.assert_array_equal(kernel, 16.0)


def test_the_average_of_frozen_weights_is_themselves_bit_for_bit() -> None:
    model = dense()
    frozen = model.get_weights()
    average = WeightAverage(model, decay=0.999)
    for update in range(1, 30):
        average.update(tf.constant(update, tf.int64))
    with average.in_place():
        for ours, theirs in zip(model.get_weights(), frozen, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_weights_come_back_after_an_error() -> None:
    model = dense()
    average = WeightAverage(model, decay=0.5)
    model.variables[0].assign(tf.ones([3, 2]))
    try:
        with average.in_place():
            raise RuntimeError
    except RuntimeError:
        np.testing.assert_array_equal(model.variables[0], 1.0)
