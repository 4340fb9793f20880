"""From shards to batches on the accelerator: the only tf.data code that training uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from components.example import ENCODED, LABEL_ID
from pipeline_def.config import TrainingConfig
from pipeline_def.image import CHANNELS, augment, channel_sums, decode

# Sequential reads of local disks and of Cloud Storage both want blocks of megabytes.
_READ_BUFFER_BYTES = 8 * 2**20

_MOMENTS_OF = 1024
_MOMENTS_BATCH = 64


def make_dataset(
    pattern: str,
    *,
    feature_spec: Mapping[str, Any],
    size: int,
    batch_size: int,
    training: TrainingConfig | None = None,
) -> tf.data.Dataset:
    """Read transformed shards as batches of images and label ids.

    Args:
        pattern: glob of the shards, uncompressed TFRecord files.
        feature_spec: of the transform graph; what is not needed is not parsed.
        size: side of the canonical images, pixels.
        batch_size: images per batch.
        training: shuffle, repeat for ever and augment in this way, in full batches only. None:
            every example exactly once, in the order of the shards.

    Returns:
        Batches of (uint8 [batch, size, size, 3], int64 [batch]). Pixels stay uint8 on the host;
        the model normalises them on the device, which a quarter of the bytes has to reach.
    """
    spec = {name: feature_spec[name] for name in (ENCODED, LABEL_ID)}

    def parse(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Parsing a batch in one call costs far less than a call per record.
        features = tf.io.parse_example(serialized, spec)
        return decode(features[ENCODED], size=size), features[LABEL_ID]

    records = _read(pattern, training)
    batches = records.batch(batch_size, drop_remainder=training is not None)
    dataset = batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    if training is not None:
        dataset = _augmented(dataset, training, size)
    return dataset.prefetch(2)


def pixel_moments(dataset: tf.data.Dataset) -> tuple[list[float], list[float]]:
    """Return mean and variance, [3] each, 0 to 255, of the pixels of the first 1,024 images.

    Records lie in the order of hashes, so the first ones are a random sample, and the same one
    each time. 1,024 images put the mean within 1 % of the range; a pass of Transform over all of
    them would double its time. Summed as integers, and so exactly.

    Args:
        dataset: batches of (uint8 [batch, height, width, 3], labels).
    """
    pixels = 0
    sums, squares = np.zeros(CHANNELS, np.int64), np.zeros(CHANNELS, np.int64)
    for images, _ in dataset.unbatch().take(_MOMENTS_OF).batch(_MOMENTS_BATCH):
        of_images = [tf.reduce_sum(x, axis=0).numpy() for x in channel_sums(images)]
        sums, squares = sums + of_images[0], squares + of_images[1]
        pixels += images.shape[0] * images.shape[1] * images.shape[2]
    mean = sums / pixels
    return mean.tolist(), (squares / pixels - mean * mean).tolist()


def _read(pattern: str, training: TrainingConfig | None) -> tf.data.Dataset:
    """Return serialized records; shuffled, while they are still small, and repeated to train."""
    shards = tf.data.Dataset.list_files(pattern, shuffle=False)
    if training is None:
        return shards.interleave(_open, cycle_length=1)
    shards = shards.shuffle(shards.cardinality(), seed=training.seed)
    records = shards.interleave(
        _open, cycle_length=training.interleave, num_parallel_calls=tf.data.AUTOTUNE
    )
    # First shuffle, then repeat: every example once per epoch, each epoch in its own order.
    return records.shuffle(training.shuffle_buffer, seed=training.seed).repeat()


def _open(shard: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(shard, buffer_size=_READ_BUFFER_BYTES)


def _augmented(dataset: tf.data.Dataset, training: TrainingConfig, size: int) -> tf.data.Dataset:
    """Augment each batch from the seed and the number of its step, so that runs can repeat it."""

    def change(step: tf.Tensor, batch: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        images, labels = batch
        seed = tf.stack([tf.cast(training.seed, tf.int64), step])
        shift = round(training.shift * size)
        return augment(images, seed=seed, shift=shift, flip=training.flip), labels

    return dataset.enumerate().map(change, num_parallel_calls=tf.data.AUTOTUNE)
