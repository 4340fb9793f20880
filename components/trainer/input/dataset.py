"""From shards to batches for the accelerator: list, order, read, decode, batch, prefetch.

A `RecordTable` lists the records, and a sampler orders them; `stream.py` reads shards without
random access. A `LoadBatch` reads and decodes a whole batch; several run at the same time.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.example import ENCODED, LABEL_ID
from components.host.machine import available_cpus
from components.images.options import TransformConfig
from components.trainer.config.input import InputConfig
from components.trainer.input.cache import cache_pixels, resolve_cache
from components.trainer.input.host_calls import (
    HostDecoder,
    Pixels,
    call_on_host,
    guard,
    read_ahead,
    share_captured,
)
from components.trainer.input.sampler import Int64Array, ShuffledSampler, TrainingOrder
from components.trainer.input.shards import RecordTable, Shards, map_shards
from components.trainer.input.stream import INTERLEAVE, read_in_order, shuffle_epochs

# Batches sampled in one Python call; a call per batch would cost more than copying small images.
_CHUNK = 64

Kept = dict[str, tuple[Pixels, Int64Array]]
"""Cache, folder and split → pixels and label ids of all its images, in memory."""

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
    kept: Kept | None = None,
) -> tf.data.Dataset:
    """Read transformed shards as batches of images and label ids.

    Args:
        shards: shards of one split.
        config: form of the stored images.
        feature_spec: spec of the transform graph; unused features are not parsed.
        batch_size: images per batch.
        options: reader, cache and parallelism. They do not change pixels; the order depends on the
            reader.
        order: how training reads the examples. None: every example once, in the order of the
            shards, with a smaller last batch.
        kept: what other datasets have cached in memory, for this one to use, and the reverse.

    Returns:
        Batches of (uint8 [batch, size, size, 3], int64 [batch]). Pixels stay uint8 on the host; the
        model normalizes them on the device, so a quarter of the bytes is transferred.

    Raises:
        ConfigurationError: `options` do not suit these shards.
        StorageError: the file of `cache: file` cannot be written.
    """
    if options.cache == "auto":
        options = resolve_cache(options, [shards], config)
    kept = {} if kept is None else kept
    plan = ReadPlan(shards, config, feature_spec, batch_size, options, order)
    if options.cache in ("decoded", "file"):
        # Decode all images once, in the order of the shards; then only copy them.
        once = dataclasses.replace(plan, order=None)
        # Some rows of a split are of one training.
        shared = kept if shards.rows is None else {}
        if (key := f"{options.cache} {shards.uri} {shards.split}") not in shared:
            shared[key] = cache_pixels(_decode_shards(once), shards, config, options)
        pixels, labels = shared[key]
        load = _copy_pixels(plan, pixels, labels)
        batches = share_captured(plan.map(plan.sample_records(), load))
    else:
        batches = _decode_shards(plan)
    return read_ahead(batches)


@dataclass(frozen=True)
class ReadPlan:
    """The arguments of `make_dataset`, and the order that follows from them."""

    shards: Shards
    config: TransformConfig
    feature_spec: Mapping[str, Any]
    batch_size: int
    options: InputConfig
    order: TrainingOrder | None

    def map(self, records: tf.data.Dataset, load: Callable[..., Any]) -> tf.data.Dataset:
        """Load several batches in parallel, in order."""
        return records.map(
            # AutoGraph would take 0.3 s to find nothing to convert.
            tf.autograph.experimental.do_not_convert(load),
            num_parallel_calls=available_cpus(),
            deterministic=True,
        )

    def sample_records(self) -> tf.data.Dataset:
        """Return (number of the batch, its record numbers int64 [batch])."""
        order = self.order
        if order is None:
            return tf.data.Dataset.range(self.shards.total).batch(self.batch_size).enumerate()
        size = self.batch_size
        sampler = ShuffledSampler(self.shards.sizes, mixed=INTERLEAVE, seed=order.seed)

        def sample(first: Int64Array) -> tuple[Int64Array, Int64Array]:
            batches = order.batch_numbers(int(first), count=_CHUNK)
            positions = batches[:, np.newaxis] * size + np.arange(size)
            return batches, sampler.at(positions)

        @tf.autograph.experimental.do_not_convert
        def in_chunks(first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            batches, records = tf.numpy_function(
                guard(sample), [first], [tf.int64, tf.int64], stateful=False
            )
            shape = [_CHUNK, size]
            return tf.ensure_shape(batches, [_CHUNK]), tf.ensure_shape(records, shape)

        firsts = tf.data.Dataset.range(order.start, np.iinfo(np.int64).max, _CHUNK)
        return firsts.map(in_chunks).unbatch()


def _decode_shards(plan: ReadPlan) -> tf.data.Dataset:
    """Read and decode batches: any records of local shards, or streamed records."""
    if plan.options.reader == "streamed" or not plan.shards.local:
        return _decode_streamed(plan)
    return plan.map(plan.sample_records(), _decode_indexed(plan))


def _decode_indexed(plan: ReadPlan) -> LoadBatch:
    """Decode record numbers, from mapped shards."""
    table = RecordTable.read(plan.shards)
    open_shard = map_shards(plan.shards.paths, shuffled=plan.order is not None)
    decoder = HostDecoder(plan.config)

    def decode_records(records: Int64Array) -> Pixels:
        return decoder.decode(table.look_up(records, open_shard))

    # Captured by the function below; an array would become part of its graph.
    label_ids = tf.constant(table.label)

    def load(batch: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images = call_on_host(decode_records, records, side=plan.config.seen_size)
        return images, tf.gather(label_ids, records)

    return load


def _decode_streamed(plan: ReadPlan) -> tf.data.Dataset:
    """Read shards in sequence, parse batches, and decode them."""
    order, size = plan.order, plan.batch_size
    if order is None:
        records = read_in_order(plan.shards, plan.config).batch(size).enumerate()
    else:
        records = shuffle_epochs(plan.shards, plan.config, order, order.start * size)
        records = records.batch(size, drop_remainder=True).enumerate(order.start)
    spec = {name: plan.feature_spec[name] for name in (ENCODED, LABEL_ID)}
    decoder = HostDecoder(plan.config)

    @tf.autograph.experimental.do_not_convert
    def parse(batch: tf.Tensor, serialized: tf.Tensor) -> Any:
        return batch, tf.io.parse_example(serialized, spec)

    def load(batch: tf.Tensor, features: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        files = features[ENCODED]
        images = call_on_host(decoder.decode, files, side=plan.config.seen_size)
        return images, features[LABEL_ID]

    # Decoding threads would wait for records and for the threads that parse them: 15 % of the time.
    parsed = records.map(parse, num_parallel_calls=1).prefetch(1)
    options = tf.data.Options()
    options.threading.max_intra_op_parallelism = 1
    return plan.map(parsed, load).with_options(options)


def _copy_pixels(plan: ReadPlan, pixels: Pixels, labels: Int64Array) -> LoadBatch:
    """Copy record numbers from the `pixels` of all images."""
    # Shares the memory, where tf.constant() would copy it.
    all_images = tf.experimental.dlpack.from_dlpack(pixels.__dlpack__())
    label_ids = tf.constant(labels)

    def load(batch: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(all_images, records), tf.gather(label_ids, records)

    return load
