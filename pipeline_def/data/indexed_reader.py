"""The reader that takes any record in any order: from shards, or from pixels decoded before."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from components.images.canonical import CHANNELS
from pipeline_def.data.batch_memory import BatchMemory, Pixels
from pipeline_def.data.host_calls import guard
from pipeline_def.data.host_decode import HostDecoder, cut_windows
from pipeline_def.data.original_crops import OriginalDecoder
from pipeline_def.data.read_plan import ReadPlan
from pipeline_def.data.sampler import Int64Array
from pipeline_def.data.shards import RecordTable, load_shards, map_shards

ReadRecords = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""From what `ReadPlan.record_batches` gives to images and label ids."""


def decode_records(plan: ReadPlan, table: RecordTable) -> ReadRecords:
    """Return a function that decodes records of mapped shards, or of shards in memory."""
    in_memory = plan.options.cache == "encoded"
    opened = load_shards(plan.shards).__getitem__ if in_memory else _map_shards(plan)
    decode = _choose_decoder(plan, HostDecoder(table, opened, plan.config))
    # Captured by the function below; an array would become a part of its graph.
    label_ids = tf.constant(table.label)

    def read(records: tf.Tensor, windows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images = on_host(decode, records, windows, plan.config.seen_size)
        return images, tf.gather(label_ids, records)

    return read


def _choose_decoder(plan: ReadPlan, decoder: HostDecoder) -> Callable[..., Pixels]:
    """Return what makes a batch of numbers of records and their windows."""
    if plan.order is None or not plan.originals:
        return decoder.decode
    originals = OriginalDecoder(plan.config, plan.order)
    return lambda records, numbers: originals.decode(decoder.look_up(records), numbers)


def _map_shards(plan: ReadPlan) -> Callable[[int], memoryview]:
    at_random = plan.order is not None and plan.order.balanced
    return map_shards(plan.shards.paths, at_random=at_random)


def gather_records(plan: ReadPlan, pixels: Pixels, labels: Int64Array) -> ReadRecords:
    """Return a function that copies records out of the `pixels` of all images."""
    size = plan.config.seen_size
    # Shares the memory, where tf.constant() would copy it.
    images = tf.experimental.dlpack.from_dlpack(pixels.__dlpack__())
    label_ids = tf.constant(labels)
    cut = functools.partial(cut_windows, pixels, size=size, memory=BatchMemory())

    def read(records: tf.Tensor, windows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if plan.config.margin or plan.random_windows:
            return on_host(cut, records, windows, size), tf.gather(label_ids, records)
        return tf.gather(images, records), tf.gather(label_ids, records)

    return read


def on_host(
    function: Callable[..., Any], records: tf.Tensor, windows: tf.Tensor, size: int
) -> tf.Tensor:
    """Call `function(records, windows)` of numpy arrays, which returns a batch of images.

    The records are numbers, or files.
    """
    images = tf.numpy_function(guard(function), [records, windows], tf.uint8, stateful=False)
    return tf.ensure_shape(images, [records.shape[0], size, size, CHANNELS])
