"""The reader that takes any record in any order: from mapped shards, or from memory."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from components.images.canonical import CHANNELS
from pipeline_def.data.cache import DEFAULT_FOLDER, decode_all, load_shards
from pipeline_def.data.host_calls import guard
from pipeline_def.data.host_decode import BatchMemory, HostDecoder, cut_windows, map_shards
from pipeline_def.data.read_plan import ReadPlan, middle_windows, windows_of
from pipeline_def.data.shards import EpochOrder, Int64Array, RecordTable
from pipeline_def.data.streamed_reader import streamed

# One call of Python gives the records of so many batches; a call for each would cost more than
# gathering a batch of small images does.
_CHUNK = 64


def indexed(source: ReadPlan, table: RecordTable) -> tf.data.Dataset:
    """Take any record in any order from mapped shards, or from shards in memory."""
    if source.options.cache == "encoded":
        decoder = HostDecoder(table, load_shards(source.shards).__getitem__, source.config)
    else:
        decoder = HostDecoder(table, map_shards(source.shards.paths), source.config)
    # Captured by the function below; an array would become a part of its graph.
    label_ids = tf.constant(table.label)

    def read(records: tf.Tensor, windows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images = _on_host(decoder.decode, records, windows, source.size)
        return images, tf.gather(label_ids, records)

    return source.map(_record_batches(source), read)


def from_pixels(source: ReadPlan, table: RecordTable | None) -> tf.data.Dataset:
    """Decode every image once, with the reader that there is; then gather batches from memory."""
    whole = dataclasses.replace(source, config=source.config.without_margin(), order=None)
    in_order = streamed(whole) if table is None else indexed(whole, table)
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
    cut = functools.partial(cut_windows, pixels, size=source.size, memory=BatchMemory())

    def gather(records: tf.Tensor, windows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if source.config.margin or source.draws_windows:
            return _on_host(cut, records, windows, source.size), tf.gather(label_ids, records)
        return tf.gather(images, records), tf.gather(label_ids, records)

    return source.map(_record_batches(source), gather)


def _on_host(
    function: Callable[..., Any], records: tf.Tensor, windows: tf.Tensor, size: int
) -> tf.Tensor:
    """Call `function(records, windows)` of numpy arrays, which returns a batch of images."""
    images = tf.numpy_function(guard(function), [records, windows], tf.uint8, stateful=False)
    return tf.ensure_shape(images, [records.shape[0], size, size, CHANNELS])


def _record_batches(source: ReadPlan) -> tf.data.Dataset:
    """Return batches of (record numbers int64 [batch], windows int32 [batch, 3])."""
    if source.order is None:
        records = tf.data.Dataset.range(source.shards.total).batch(source.batch_size)
        return records.map(lambda batch: (batch, middle_windows(batch, source.config)))
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
    return chunks.map(lambda batch, records: (records, windows_of(batch, records, source)))
