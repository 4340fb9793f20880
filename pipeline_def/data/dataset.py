"""From shards to batches for the accelerator: list, order, read, decode, batch, prefetch.

`find_record_table` lists the records, and `sample_records` orders them; shards without random
access are streamed by `stream.py`. One call of a `LoadBatch` reads and decodes a whole batch, and
several batches are loaded at the same time.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from components.contract.example import ENCODED, LABEL_ID
from components.images.canonical import canonicalize, decode
from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.data.cache import cache_pixels, resolve_cache
from pipeline_def.data.host_calls import BatchMemory, Pixels, call_on_host
from pipeline_def.data.host_decode import HostDecoder, cut_windows
from pipeline_def.data.original_crops import OriginalDecoder
from pipeline_def.data.read_plan import ReadPlan
from pipeline_def.data.sampler import Int64Array, TrainingOrder
from pipeline_def.data.shards import RecordTable, Shards, find_record_table, load_shards, map_shards
from pipeline_def.data.stream import read_in_order, shuffle_epochs

LoadBatch = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""From the number of a batch and its records to images and label ids."""


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
        shards: shards of one split.
        config: form of the stored images.
        feature_spec: spec of the transform graph; unused features are not parsed.
        batch_size: images per batch.
        options: reader, cache and parallelism. They do not change pixels; the order depends on the
            reader, `interleave` and `shuffle_buffer`.
        order: how training reads the examples. None: every example once, in the order of the
            shards, with a smaller last batch.

    Returns:
        Batches of (uint8 [batch, size, size, 3], int64 [batch]). Pixels stay uint8 on the host;
        the model normalizes them on the device, so a quarter of the bytes is transferred.

    Raises:
        ConfigurationError: `options` do not suit these shards.
        StorageError: the file of `cache: file` cannot be written.
    """
    options = resolve_cache(options, [shards], config)
    plan = ReadPlan(shards, config, feature_spec, batch_size, options, order)
    if options.cache in ("decoded", "file"):
        # Decode all images once, in the order of the shards; then only copy them.
        once = dataclasses.replace(plan, config=config.without_margin(), order=None)
        pixels, labels = cache_pixels(_decode_shards(once), shards, config, options)
        batches = plan.map(plan.sample_records(labels), _copy_pixels(plan, pixels, labels))
    else:
        batches = _decode_shards(plan)
    return batches.prefetch(options.prefetch)


def _decode_shards(plan: ReadPlan) -> tf.data.Dataset:
    """Read and decode batches: any records of indexed shards, or streamed records."""
    table = None if plan.serves_originals else find_record_table(plan.shards, plan.options)
    if table:
        return plan.map(plan.sample_records(table.label), _decode_indexed(plan, table))
    if plan.order is None:
        records = read_in_order(plan).batch(plan.batch_size).enumerate()
    else:
        records = shuffle_epochs(plan, plan.order).batch(plan.batch_size, drop_remainder=True)
        records = records.enumerate(plan.order.start)
    return plan.map(records, _decode_serialized(plan))


def _decode_indexed(plan: ReadPlan, table: RecordTable) -> LoadBatch:
    """Decode record numbers, from mapped shards or from shards in memory."""
    if plan.options.cache == "encoded":
        decoder = HostDecoder(table, load_shards(plan.shards).__getitem__, plan.config)
    else:
        at_random = plan.order is not None and plan.order.balanced
        mapped = map_shards(plan.shards.paths, at_random=at_random)
        decoder = HostDecoder(table, mapped, plan.config)
    decode_batch: Callable[..., Pixels] = decoder.decode
    if plan.crops_originals:
        crop = OriginalDecoder(plan.config, plan.training).decode
        decode_batch = lambda records, numbers: crop(decoder.look_up(records), numbers)  # noqa: E731
    # Captured by the function below; an array would become part of its graph.
    label_ids = tf.constant(table.label)

    def load(batch: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        windows = plan.draw_windows(batch, records)
        images = call_on_host(decode_batch, records, windows, side=plan.config.seen_size)
        return images, tf.gather(label_ids, records)

    return load


def _decode_serialized(plan: ReadPlan) -> LoadBatch:
    """Parse and decode serialized records with TensorFlow's ops, except for crops of originals."""
    spec = {name: plan.feature_spec[name] for name in (ENCODED, LABEL_ID)}
    crop = OriginalDecoder(plan.config, plan.training).decode if plan.crops_originals else None

    def load(batch: tf.Tensor, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # One call per batch costs far less than one per record.
        features = tf.io.parse_example(serialized, spec)
        files = features[ENCODED]
        windows = plan.draw_windows(batch, serialized) if plan.random_windows else None
        if crop:
            images = call_on_host(crop, files, windows, side=plan.config.seen_size)
        else:
            # Evaluation sees originals as the served model does.
            canonical = canonicalize(files, plan.config) if plan.serves_originals else files
            images = decode(canonical, plan.config, windows=windows)
        return images, features[LABEL_ID]

    return load


def _copy_pixels(plan: ReadPlan, pixels: Pixels, labels: Int64Array) -> LoadBatch:
    """Copy record numbers, or windows of them, from the `pixels` of all images."""
    # Shares the memory, where tf.constant() would copy it.
    all_images = tf.experimental.dlpack.from_dlpack(pixels.__dlpack__())
    label_ids = tf.constant(labels)
    side = plan.config.seen_size
    cut = functools.partial(cut_windows, pixels, size=side, memory=BatchMemory())

    def load(batch: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if plan.config.margin or plan.random_windows:
            windows = plan.draw_windows(batch, records)
            images = call_on_host(cut, records, windows, side=side)
        else:
            images = tf.gather(all_images, records)
        return images, tf.gather(label_ids, records)

    return load
