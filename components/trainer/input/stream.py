"""Serialized records read from shards in sequence, by TensorFlow's own ops."""

import functools

import numpy as np
import tensorflow as tf

from components.contract.errors import ConfigurationError
from components.images.options import TransformConfig
from components.trainer.input.sampler import TrainingOrder
from components.trainer.input.shards import Shards

# Size of a read, and of the readahead of each shard. From a bucket with 30 ms a request, 16 streams
# of 30 MB shards gave 9,300 images/s with 4 MiB and readahead, 3,400 without readahead, as streams
# then wait for one another, and 7,200 with 1 MiB.
_READ_BYTES = 4 * 2**20

INTERLEAVE = 16
"""Shards read at the same time; from a bucket, the number of parallel downloads."""

SHUFFLE_BUFFER = 2_048
"""Encoded examples to draw from: few, as records are stored in hash order, and the first batch
waits until they are there."""

# `DEFAULT_GRAPH_SEED` of tensorflow/python/framework/random_seed.py.
_DEFAULT_GRAPH_SEED = 87654321

# Rough size of a stored image per pixel, bytes, to turn `_READ_BYTES` into records.
_BYTES_PER_PIXEL = {"jpeg": 0.5, "png": 1.5, "raw": 3.0}


def read_in_order(shards: Shards, config: TransformConfig) -> tf.data.Dataset:
    """Return every serialized record once, in the order of the shards."""
    paths = tf.data.Dataset.from_tensor_slices(shards.paths)
    return paths.flat_map(functools.partial(_open, config))


def shuffle_epochs(
    shards: Shards, config: TransformConfig, order: TrainingOrder, position: int
) -> tf.data.Dataset:
    """Return the records from `position` on, shuffled while serialized.

    Shards are shuffled and interleaved, then records are shuffled in a buffer.

    Raises:
        ConfigurationError: there are fewer shards than workers.
    """
    paths = shards.paths[order.pipeline :: order.pipelines]
    counts = [*shards.counts.values()][order.pipeline :: order.pipelines]
    if not paths:
        raise ConfigurationError(
            f"{order.pipelines} workers cannot share {len(shards.counts)} shards: "
            f"set ingest.min_shards to {order.pipelines} or more."
        )
    first_epoch, skipped = divmod(position, sum(counts))

    @tf.autograph.experimental.do_not_convert
    def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        # With a global seed of 0, TensorFlow compares the shuffle's own seed, a tensor, with 0 in
        # Python, which fails.
        if tf.compat.v1.get_default_graph().seed == 0:
            tf.compat.v1.set_random_seed(_DEFAULT_GRAPH_SEED)
        seeds = tf.random.experimental.stateless_split([order.seed, epoch], 2)
        shuffled = tf.data.Dataset.from_tensor_slices(paths).shuffle(
            len(paths), seed=seeds[0, 0], reshuffle_each_iteration=False
        )
        records = shuffled.interleave(
            lambda path: _open(config, path),
            cycle_length=INTERLEAVE,
            # AUTOTUNE starts with few, and each waits for the bucket.
            num_parallel_calls=min(INTERLEAVE, len(paths)),
            deterministic=True,
        )
        return records.shuffle(SHUFFLE_BUFFER, seed=seeds[1, 0], reshuffle_each_iteration=False)

    # First shuffle, then repeat, with a different shuffle for each epoch. The epoch's number
    # determines its order, so a resumed run skips records of one epoch only.
    epochs = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max)
    return epochs.flat_map(read_epoch).skip(skipped)


def _open(config: TransformConfig, shard: tf.Tensor) -> tf.data.Dataset:
    """Return the records of a shard, with readahead."""
    size = config.seen_size**2 * _BYTES_PER_PIXEL[config.storage]
    records = tf.data.TFRecordDataset(shard, buffer_size=_READ_BYTES)
    return records.prefetch(max(1, int(_READ_BYTES / size)))
