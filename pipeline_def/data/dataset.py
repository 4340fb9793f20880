"""From shards to batches on the accelerator: order, read, decode, batch, prefetch.

The order is decided first, in `order.py` and `read_plan.py`; then records are read and decoded, by
`indexed_reader.py` or `streamed_reader.py`, several batches at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from components.contract.errors import ConfigurationError
from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.data.cache import resolve_cache
from pipeline_def.data.indexed_reader import decode_records, gather_records
from pipeline_def.data.pixel_cache import decode_all
from pipeline_def.data.read_plan import ReadPlan
from pipeline_def.data.sampler import TrainingOrder
from pipeline_def.data.shards import RecordTable, Shards
from pipeline_def.data.streamed_reader import parse_and_decode, serialized_batches


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
        ConfigurationError: these shards cannot be read or cached as `options` ask.
        StorageError: the file of `cache: file` cannot be written.
    """
    options = resolve_cache(options, [shards], config)
    plan = ReadPlan(shards, config, feature_spec, batch_size, options, order)
    return _read(plan, _find_table(plan)).prefetch(options.prefetch)


def _read(plan: ReadPlan, table: RecordTable | None) -> tf.data.Dataset:
    if plan.originals and plan.order is None:
        # As evaluation and the served model see them: Transform's graph does it.
        return plan.map(serialized_batches(plan), parse_and_decode(plan))
    if plan.options.cache in ("decoded", "file"):
        # Once, all images in the order of the shards; then only copied, in the order of training.
        pixels, labels = decode_all(_read(_uncached(plan), table), plan)
        return plan.map(plan.record_batches(labels), gather_records(plan, pixels, labels))
    if table is not None:
        return plan.map(plan.record_batches(table.label), decode_records(plan, table))
    if plan.order is not None and plan.order.balanced:
        raise ConfigurationError(
            f"training.balance is 'sampling', which takes records in any order, and the shards at "
            f"{plan.shards.uri} are read in sequence: choose input.reader indexed, input.cache "
            f"decoded, or training.balance weights."
        )
    return plan.map(serialized_batches(plan), parse_and_decode(plan))


def _uncached(plan: ReadPlan) -> ReadPlan:
    """Return a plan to read all stored pixels once, in the order of the shards."""
    options = dataclasses.replace(plan.options, cache="none", cache_folder=None)
    whole = plan.config.without_margin()
    return dataclasses.replace(plan, config=whole, options=options, order=None)


def _find_table(plan: ReadPlan) -> RecordTable | None:
    """Read the index of the images for the indexed reader; None: the streamed one is to read."""
    shards, options = plan.shards, plan.options
    random_access = shards.local or options.cache == "encoded"
    if options.reader == "indexed" and not random_access:
        raise ConfigurationError(
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
        raise ConfigurationError(
            f"{shards.uri} has no index of its images, which our Transform writes: choose "
            f"input.reader streamed, and another input.cache than encoded."
        ) from error
