"""From shards to batches on the accelerator: the tf.data code of training and evaluation."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from components.errors import UserError
from components.example import ENCODED, LABEL_ID
from pipeline_def.cache import DEFAULT_FOLDER, decode_all, load_shards, resolve_cache
from pipeline_def.config import TransformConfig
from pipeline_def.host_calls import guard
from pipeline_def.host_decode import HostDecoder, cut_windows, map_shards
from pipeline_def.image import CHANNELS, decode
from pipeline_def.input_config import InputConfig
from pipeline_def.records import EpochOrder, Int64Array, RecordTable, Shards

# One call of Python gives the records of so many batches; a call for each would cost more than
# gathering a batch of small images does.
_CHUNK = 64

# What one read of a shard fetches, and how much of each shard is fetched ahead. From a bucket with
# 30 ms a request, shards of 30 MB in 16 streams gave 11,000 images/s with 4 MiB and reading ahead,
# 3,400 without, as the streams then wait for one another, and 7,200 with 1 MiB.
_READ_BYTES = 4 * 2**20

# A rough size of a stored image per pixel, bytes, to tell how many records that is.
_BYTES_PER_PIXEL = {"jpeg": 0.5, "png": 1.5, "raw": 3.0}


@dataclass(frozen=True)
class TrainingOrder:
    """How training goes through the examples, for ever, in full batches only."""

    seed: int = 0
    """Same seed, same order."""
    start: int = 0
    """Batches that this pipeline has delivered before, in the run that is now continued."""
    pipelines: int = 1
    """Input pipelines that share the examples, one for each worker of distributed training."""
    pipeline: int = 0
    """Number of this one, from 0."""

    @classmethod
    def of_worker(cls, seed: int, step: int, worker: tf.distribute.InputContext) -> TrainingOrder:
        """Return the part of one worker, whose replicas take a batch each in every step.

        Args:
            seed: same seed, same order.
            step: number of steps that were done before.
            worker: which one, of how many.
        """
        replicas = worker.num_replicas_in_sync // worker.num_input_pipelines
        return cls(
            seed=seed,
            start=step * replicas,
            pipelines=worker.num_input_pipelines,
            pipeline=worker.input_pipeline_id,
        )


def make_dataset(
    shards: Shards,
    *,
    config: TransformConfig,
    feature_spec: Mapping[str, Any],
    batch_size: int,
    options: InputConfig = InputConfig(),  # noqa: B008 - frozen
    order: TrainingOrder | None = None,
) -> tf.data.Dataset:
    """Read transformed shards as batches of images and label ids.

    Args:
        shards: what to read.
        config: of the images that Transform has stored.
        feature_spec: of the transform graph; what is not needed is not parsed.
        batch_size: images per batch.
        options: the reader, its cache and its parallelism. None of them changes the pixels; the
            order depends on the reader and on `interleave` and `shuffle_buffer`.
        order: how training takes the examples. None: every example exactly once, in the order of
            the shards, the last batch as small as it comes.

    Returns:
        Batches of (uint8 [batch, size, size, 3], int64 [batch]). Pixels stay uint8 on the host;
        the model normalises them on the device, which a quarter of the bytes has to reach.

    Raises:
        UserError: the cache that was asked for does not fit.
    """
    options = resolve_cache(options, [shards], config)
    table = _find_table(shards, options)
    source = _Source(shards, config, feature_spec, batch_size, options, order)
    if options.cache in ("decoded", "file"):
        dataset = _from_pixels(source, table)
    elif table is None:
        dataset = _streamed(source)
    else:
        dataset = _indexed(source, table)
    return dataset.prefetch(options.prefetch)


@dataclass(frozen=True)
class _Source:
    """The arguments of `make_dataset`."""

    shards: Shards
    config: TransformConfig
    feature_spec: Mapping[str, Any]
    batch_size: int
    options: InputConfig
    order: TrainingOrder | None

    @property
    def size(self) -> int:
        return self.config.seen_size

    @property
    def threads(self) -> int:
        return self.options.threads or len(os.sched_getaffinity(0))

    def open(self, shard: tf.Tensor) -> tf.data.Dataset:
        """Return the records of a shard, of which the next few megabytes are read ahead."""
        size = self.config.stored_size**2 * _BYTES_PER_PIXEL[self.config.storage]
        records = tf.data.TFRecordDataset(shard, buffer_size=_READ_BYTES)
        return records.prefetch(max(1, int(_READ_BYTES / size)))

    def map(self, dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
        deterministic = self.options.deterministic or self.order is None
        return dataset.map(function, num_parallel_calls=self.threads, deterministic=deterministic)


def _find_table(shards: Shards, options: InputConfig) -> RecordTable | None:
    """Read the index of the images for the indexed reader; None: the streamed one is to read."""
    random_access = shards.local or options.cache == "encoded"
    if options.reader == "indexed" and not random_access:
        raise UserError(
            f"input.reader is 'indexed', which reads local shards, and these are at {shards.uri}: "
            f"choose input.cache encoded or input.reader streamed."
        )
    if options.reader == "streamed" or not random_access:
        return None
    try:
        return RecordTable.read(shards)
    except FileNotFoundError as error:
        if options.reader == "auto" and options.cache != "encoded":
            return None
        raise UserError(
            f"{shards.uri} has no index of its images, which our Transform writes: choose "
            f"input.reader streamed, and another input.cache than encoded."
        ) from error


def _indexed(source: _Source, table: RecordTable) -> tf.data.Dataset:
    """Take any record in any order from mapped shards, or from shards in memory."""
    if source.options.cache == "encoded":
        decoder = HostDecoder(table, load_shards(source.shards).__getitem__, source.config)
    else:
        decoder = HostDecoder(table, map_shards(source.shards.paths), source.config)
    # Captured by the function below; an array would become a part of its graph.
    label_ids = tf.constant(table.label)

    def read(records: tf.Tensor, corners: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images = _on_host(decoder.decode, records, corners, source.size)
        return images, tf.gather(label_ids, records)

    return source.map(_record_batches(source), read)


def _from_pixels(source: _Source, table: RecordTable | None) -> tf.data.Dataset:
    """Decode every image once, with the reader that there is; then gather batches from memory."""
    whole = dataclasses.replace(source, config=source.config.without_margin(), order=None)
    in_order = _streamed(whole) if table is None else _indexed(whole, table)
    folder = source.options.cache_folder or DEFAULT_FOLDER
    pixels, labels = decode_all(
        in_order.prefetch(2).as_numpy_iterator(),
        source.shards,
        source.config,
        folder=folder if source.options.cache == "file" else None,
    )
    # Shares the memory, where tf.constant() would copy it.
    images = tf.experimental.dlpack.from_dlpack(pixels.__dlpack__())
    label_ids = tf.constant(labels)

    def gather(records: tf.Tensor, corners: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if source.config.margin:
            cut = functools.partial(cut_windows, pixels, size=source.size)
            return _on_host(cut, records, corners, source.size), tf.gather(label_ids, records)
        return tf.gather(images, records), tf.gather(label_ids, records)

    return source.map(_record_batches(source), gather)


def _on_host(
    function: Callable[..., Any], records: tf.Tensor, corners: tf.Tensor, size: int
) -> tf.Tensor:
    """Call `function(records, corners)` of numpy arrays, which returns a batch of images."""
    images = tf.numpy_function(guard(function), [records, corners], tf.uint8, stateful=False)
    return tf.ensure_shape(images, [records.shape[0], size, size, CHANNELS])


def _record_batches(source: _Source) -> tf.data.Dataset:
    """Return batches of (record numbers int64 [batch], corners int32 [batch, 2])."""
    if source.order is None:
        records = tf.data.Dataset.range(source.shards.total).batch(source.batch_size)
        return records.map(lambda batch: (batch, _middle(batch, source.config)))
    order, size = source.order, source.batch_size
    epochs = EpochOrder(
        list(source.shards.counts.values()), mixed=source.options.interleave, seed=order.seed
    )

    def chunk(first: Int64Array) -> tuple[Int64Array, Int64Array]:
        # Batches go to the pipelines in turn, so that each step has the same examples however
        # many pipelines there are.
        batches = (first + np.arange(_CHUNK)) * order.pipelines + order.pipeline
        return batches, epochs.at(batches[:, np.newaxis] * size + np.arange(size))

    def in_chunks(first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        batches, records = tf.numpy_function(
            guard(chunk), [first], [tf.int64, tf.int64], stateful=False
        )
        return tf.ensure_shape(batches, [_CHUNK]), tf.ensure_shape(records, [_CHUNK, size])

    firsts = tf.data.Dataset.range(order.start, np.iinfo(np.int64).max, _CHUNK)
    chunks = firsts.map(in_chunks).unbatch()
    return chunks.map(lambda batch, records: (records, _corners(batch, records, source)))


def _corners(batch: tf.Tensor, records: tf.Tensor, source: _Source) -> tf.Tensor:
    """Draw the windows of a batch, by the seed and the batch's number alone."""
    if not (source.config.margin and source.order):
        return _middle(records, source.config)
    return tf.random.stateless_uniform(
        [source.batch_size, 2],
        [source.order.seed, batch],
        maxval=source.config.margin + 1,
        dtype=tf.int32,
    )


def _middle(batch: tf.Tensor, config: TransformConfig) -> tf.Tensor:
    return tf.fill([tf.shape(batch)[0], 2], config.margin // 2)


def _streamed(source: _Source) -> tf.data.Dataset:
    """Read shards in sequence, with TensorFlow's own operations only."""
    spec = {name: source.feature_spec[name] for name in (ENCODED, LABEL_ID)}

    def parse(batch: tf.Tensor, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Parsing a batch in one call costs far less than a call per record.
        features = tf.io.parse_example(serialized, spec)
        corners = _corners(batch, serialized, source)
        return decode(features[ENCODED], source.config, corners=corners), features[LABEL_ID]

    first = 0
    if source.order is None:
        records = tf.data.Dataset.from_tensor_slices(source.shards.paths).flat_map(source.open)
    else:
        first = source.order.start
        records = _shuffled_epochs(source, source.order)
    batches = records.batch(source.batch_size, drop_remainder=source.order is not None)
    return source.map(batches.enumerate(first), parse)


def _shuffled_epochs(source: _Source, order: TrainingOrder) -> tf.data.Dataset:
    """Return serialized records; shuffled, while they are still small, epoch after epoch."""
    paths = source.shards.paths[order.pipeline :: order.pipelines]
    counts = list(source.shards.counts.values())[order.pipeline :: order.pipelines]
    if not paths:
        raise UserError(
            f"{order.pipelines} workers cannot share {len(source.shards.paths)} shards: "
            f"set ingest.min_shards to {order.pipelines} or more, or input.reader to indexed."
        )
    first_epoch, position = divmod(order.start * source.batch_size, sum(counts))

    def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        seeds = tf.random.experimental.stateless_split([order.seed, epoch], 2)
        shards = tf.data.Dataset.from_tensor_slices(paths).shuffle(
            len(paths), seed=seeds[0, 0], reshuffle_each_iteration=False
        )
        records = shards.interleave(
            source.open,
            cycle_length=source.options.interleave,
            # AUTOTUNE begins with few, and a bucket keeps each waiting.
            num_parallel_calls=min(source.options.interleave, len(paths)),
            deterministic=source.options.deterministic,
        )
        return records.shuffle(
            source.options.shuffle_buffer, seed=seeds[1, 0], reshuffle_each_iteration=False
        )

    # An epoch's order follows from its number, so a run that is continued skips what it has seen
    # of one epoch, not all that came before.
    epochs = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max)
    return epochs.flat_map(read_epoch).skip(position)
