"""The reader that takes shards in sequence, by TensorFlow's own operations only."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from components.contract.errors import ConfigurationError
from components.contract.example import ENCODED, LABEL_ID
from components.images.canonical import canonicalize, decode
from components.transform.config import TransformConfig
from pipeline_def.data.indexed_reader import on_host
from pipeline_def.data.original_crops import OriginalDecoder
from pipeline_def.data.read_plan import ReadPlan
from pipeline_def.data.sampler import TrainingOrder

# What one read of a shard fetches, and how much of each shard is fetched ahead. From a bucket with
# 30 ms a request, shards of 30 MB in 16 streams gave 9,300 images/s with 4 MiB and reading ahead,
# 3,400 without, as the streams then wait for one another, and 7,200 with 1 MiB.
_READ_BYTES = 4 * 2**20

# Records of the next epoch that wait beside its full shuffle buffer. With 1, each record cost 23 µs
# of CPU more, as two threads woke each other in turn; with so many none.
_HANDED_OVER = 128

# `DEFAULT_GRAPH_SEED` of tensorflow/python/framework/random_seed.py.
_DEFAULT_GRAPH_SEED = 87654321

# A rough size of a stored image per pixel, bytes, to tell how many records that is.
_BYTES_PER_PIXEL = {"jpeg": 0.5, "png": 1.5, "raw": 3.0, "originals": 2.0}


def serialized_batches(plan: ReadPlan) -> tf.data.Dataset:
    """Return (number of the batch, serialized records string [batch]), in the plan's order."""
    if plan.order is None:
        paths = tf.data.Dataset.from_tensor_slices(plan.shards.paths)
        first, records = 0, paths.flat_map(functools.partial(_open, plan.config))
    else:
        first, records = plan.order.start, _shuffled_epochs(plan, plan.order)
    return records.batch(plan.batch_size, drop_remainder=plan.order is not None).enumerate(first)


def parse_and_decode(plan: ReadPlan) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """Return a function from what `serialized_batches` gives to images and label ids."""
    spec = {name: plan.feature_spec[name] for name in (ENCODED, LABEL_ID)}
    images_of = _images_of(plan)

    def read(batch: tf.Tensor, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Parsing a batch in one call costs far less than a call per record.
        features = tf.io.parse_example(serialized, spec)
        windows = plan.windows(batch, serialized) if plan.random_windows else None
        return images_of(features[ENCODED], windows), features[LABEL_ID]

    return read


def _images_of(plan: ReadPlan) -> Callable[[tf.Tensor, tf.Tensor | None], tf.Tensor]:
    """Return a function from stored files and their windows, if any, to images."""
    if not plan.originals:
        return lambda files, windows: decode(files, plan.config, windows=windows)
    if plan.order is None:
        return lambda files, _: decode(canonicalize(files, plan.config), plan.config)
    cut = OriginalDecoder(plan.config, plan.order).decode
    return lambda files, numbers: on_host(cut, files, numbers, plan.config.seen_size)


def _shuffled_epochs(plan: ReadPlan, order: TrainingOrder) -> tf.data.Dataset:
    """Return serialized records; shuffled, while they are still small, epoch after epoch."""
    paths = plan.shards.paths[order.pipeline :: order.pipelines]
    counts = list(plan.shards.counts.values())[order.pipeline :: order.pipelines]
    if not paths:
        raise ConfigurationError(
            f"{order.pipelines} workers cannot share {len(plan.shards.paths)} shards: "
            f"set ingest.min_shards to {order.pipelines} or more, or input.reader to indexed."
        )
    first_epoch, position = divmod(order.start * plan.batch_size, sum(counts))

    def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        _accept_seeds_that_are_tensors()
        seeds = tf.random.experimental.stateless_split([order.seed, epoch], 2)
        shards = tf.data.Dataset.from_tensor_slices(paths).shuffle(
            len(paths), seed=seeds[0, 0], reshuffle_each_iteration=False
        )
        records = shards.interleave(
            functools.partial(_open, plan.config),
            cycle_length=plan.options.interleave,
            # AUTOTUNE begins with few, and a bucket keeps each waiting.
            num_parallel_calls=min(plan.options.interleave, len(paths)),
            deterministic=plan.options.deterministic,
        )
        return records.shuffle(
            plan.options.shuffle_buffer, seed=seeds[1, 0], reshuffle_each_iteration=False
        )

    # First shuffle, then go on to the next epoch, each with its own shuffle. An epoch's order
    # follows from its number, so a run that is continued skips what it has seen of one epoch only.
    epochs = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max)
    return _each_opened_ahead(epochs, read_epoch).skip(position)


def _each_opened_ahead(
    epochs: tf.data.Dataset, read: Callable[[tf.Tensor], tf.data.Dataset]
) -> tf.data.Dataset:
    """Return the serialized records of one epoch after the other; the next one's buffers are full.

    `flat_map` fills them when the epoch before is over, which takes a bucket up to half a second.
    `interleave` opens two epochs ahead, and keeps memory for the buffers of three.
    """
    opened = tf.function(
        lambda epoch: tf.data.experimental.to_variant(read(epoch)),
        input_signature=[tf.TensorSpec([], tf.int64)],
        autograph=False,
    ).get_concrete_function()
    variant = tf.raw_ops.ParallelInterleaveDatasetV4(
        input_dataset=tf.data.experimental.to_variant(epochs),
        other_arguments=opened.captured_inputs,
        cycle_length=1,
        block_length=1,
        buffer_output_elements=_HANDED_OVER,
        prefetch_input_elements=1,
        num_parallel_calls=1,
        f=opened,
        output_types=[tf.string],
        output_shapes=[[]],
        deterministic="true",
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))


def _accept_seeds_that_are_tensors() -> None:
    """Give the graph that is being traced TensorFlow's default seed where its seed is 0.

    With a global seed of 0, as after `set_random_seed(0)`, TensorFlow compares the shuffle's own
    seed with 0 in Python, which fails for a tensor.
    """
    if tf.compat.v1.get_default_graph().seed == 0:
        tf.compat.v1.set_random_seed(_DEFAULT_GRAPH_SEED)


def _open(config: TransformConfig, shard: tf.Tensor) -> tf.data.Dataset:
    """Return the records of a shard, of which the next few megabytes are read ahead."""
    size = config.stored_size**2 * _BYTES_PER_PIXEL[config.storage]
    records = tf.data.TFRecordDataset(shard, buffer_size=_READ_BYTES)
    return records.prefetch(max(1, int(_READ_BYTES / size)))
