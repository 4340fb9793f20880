from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
import tf_keras

from pipeline_def.training.steps.precision import precision


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_layers_of_the_block_compute_in_it_with_weights_of_float32(name: Any) -> None:
    with precision(name):
        layer = tf_keras.layers.Dense(2)
    assert layer(tf.zeros([1, 3])).dtype == name
    assert {weight.dtype for weight in layer.weights} == {tf.float32}


def test_the_policy_of_before_comes_back_after_an_error() -> None:
    before = tf_keras.mixed_precision.global_policy()
    with pytest.raises(RuntimeError), precision("bfloat16"):
        raise RuntimeError
    assert tf_keras.mixed_precision.global_policy() is before
