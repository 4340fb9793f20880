"""Reads a shard of examples in batches: as a model takes them, and what slices are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from components.contract.example import FILENAME, FORMAT, HEIGHT, LABEL, LUMINANCE, WIDTH

BATCH = 64
"""Examples that a model is asked about at once, as many as Transform decodes at once. A process
that asked a MobileNetV2 about 128 images of 192 pixels took 2,376 MiB, about 64 1,590 MiB."""

_READ_BYTES = 2**23
_AHEAD = 2

_TEXT = tf.io.FixedLenFeature([], tf.string)
_NUMBER = tf.io.FixedLenFeature([], tf.int64)
_SPEC = {
    **dict.fromkeys((FILENAME, FORMAT, LABEL), _TEXT),
    **dict.fromkeys((HEIGHT, WIDTH), _NUMBER),
    LUMINANCE: tf.io.FixedLenFeature([], tf.float32, float("nan")),
}


def read_batches(shard: str) -> Iterator[tuple[tf.Tensor, dict[str, NDArray[Any]]]]:
    """Yield the serialized examples of a shard, string [BATCH] or fewer, and their features.

    The features are those that `describe_slices` asks for, [examples] each: not the images.
    """
    records = tf.data.TFRecordDataset(shard, buffer_size=_READ_BYTES)
    for examples in records.batch(BATCH).prefetch(_AHEAD):
        features = tf.io.parse_example(examples, _SPEC)
        yield examples, {name: of.numpy() for name, of in features.items()}
