"""From shards to batches on the accelerator, for training and evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from components.contract.errors import UserError
from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.data.cache import resolve_cache
from pipeline_def.data.indexed_reader import from_pixels, indexed
from pipeline_def.data.read_plan import ReadPlan, TrainingOrder
from pipeline_def.data.shards import RecordTable, Shards
from pipeline_def.data.streamed_reader import streamed


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
    source = ReadPlan(shards, config, feature_spec, batch_size, options, order)
    if options.cache in ("decoded", "file"):
        dataset = from_pixels(source, table)
    elif table is None:
        dataset = streamed(source)
    else:
        dataset = indexed(source, table)
    return dataset.prefetch(options.prefetch)


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
