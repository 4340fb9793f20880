"""What layers compute in: a policy of Keras, for as long as a model is built."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

import tf_keras

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


@contextlib.contextmanager
def precision(name: Literal["float32", "bfloat16", "float16"]) -> Iterator[None]:
    """Let layers that are made within the block compute in `name`; their weights stay float32.

    A model keeps what it was built with. The one for export is built outside of any block, and
    given the same weights. The scaling of the loss that float16 needs is the optimizer's.
    """
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(_POLICIES[name])
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(before)
