"""What is read and how, for every reader: the batches of records, and the window of each image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.example import TRAIN
from components.contract.machine import available_cpus
from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.data.host_calls import guard
from pipeline_def.data.original_crops import NUMBERS
from pipeline_def.data.sampler import (
    ClassBalancedSampler,
    Int64Array,
    Sampler,
    ShuffledSampler,
    TrainingOrder,
)
from pipeline_def.data.shards import Shards

# One call of Python gives the records of so many batches; a call for each would cost more than
# gathering a batch of small images does.
_CHUNK = 64


@dataclass(frozen=True)
class ReadPlan:
    """What to read and how: the arguments of `make_dataset`."""

    shards: Shards
    config: TransformConfig
    feature_spec: Mapping[str, Any]
    batch_size: int
    options: InputConfig
    order: TrainingOrder | None

    @property
    def originals(self) -> bool:
        """Whether the records hold originals, and not images of one size."""
        return self.config.storage == "originals" and self.shards.split == TRAIN

    @property
    def random_windows(self) -> bool:
        """Whether images are cut out or mirrored at random."""
        if self.order is None:
            return False
        return self.originals or self.config.margin > 0 or self.order.flip

    def map(self, dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
        """Apply `function` to several batches at a time, in their order if that is asked for."""
        return dataset.map(
            # AutoGraph has nothing to convert, and takes 0.3 s to find that out.
            tf.autograph.experimental.do_not_convert(function),
            num_parallel_calls=self.options.threads or available_cpus(),
            deterministic=self.options.deterministic or self.order is None,
        )

    def windows(self, batch: tf.Tensor, records: tf.Tensor) -> tf.Tensor:
        """Return the window of each of the `records` of a batch, by the seed and its number alone.

        Returns:
            int32 [batch, 3]: top and left, 0 to `config.margin`, and 1 where the image is mirrored.
            Without an order, the windows in the middle. For originals, float32 [batch, 5]: the
            random numbers by which `CropRule.draw` draws them.

        >>> shards = Shards("examples", "train", {})
        >>> config = TransformConfig(size=24, margin=8)
        >>> plan = ReadPlan(shards, config, {}, 3, InputConfig(), TrainingOrder(flip=True))
        >>> plan.windows(tf.constant(5, tf.int64), tf.range(3)).numpy().tolist()
        [[4, 1, 0], [0, 6, 1], [4, 5, 0]]
        >>> plan = ReadPlan(shards, config, {}, 3, InputConfig(), order=None)
        >>> plan.windows(tf.constant(5, tf.int64), tf.range(2)).numpy().tolist()
        [[4, 4, 0], [4, 4, 0]]
        """
        order, margin = self.order, self.config.margin
        if order is None or not self.random_windows:
            middle = tf.constant([[margin // 2, margin // 2, 0]])
            return tf.tile(middle, [tf.shape(records)[0], 1])
        if self.originals:
            shape = [self.batch_size, NUMBERS]
            return tf.random.stateless_uniform(shape, [order.seed, batch])
        limits = tf.constant([margin + 1, margin + 1, 1 + order.flip], tf.float32)
        numbers = tf.random.stateless_uniform([self.batch_size, 3], [order.seed, batch])
        return tf.cast(numbers * limits, tf.int32)

    def record_batches(self, labels: Int64Array) -> tf.data.Dataset:
        """Return batches of (record numbers int64 [batch], windows int32 [batch, 3]).

        Args:
            labels: label ids of all records, by which a balanced order goes.
        """
        if self.order is None:
            numbers = tf.data.Dataset.range(self.shards.total).batch(self.batch_size).enumerate()
        else:
            numbers = self._shuffled_batches(self.order, labels)

        @tf.autograph.experimental.do_not_convert
        def with_windows(batch: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return records, self.windows(batch, records)

        return numbers.map(with_windows)

    def _record_order(self, order: TrainingOrder, labels: Int64Array) -> Sampler:
        if order.balanced:
            return ClassBalancedSampler(labels, seed=order.seed)
        counts = list(self.shards.counts.values())
        return ShuffledSampler(counts, mixed=self.options.interleave, seed=order.seed)

    def _shuffled_batches(self, order: TrainingOrder, labels: Int64Array) -> tf.data.Dataset:
        """Return (number of the batch, its record numbers), epoch after epoch."""
        epochs = self._record_order(order, labels)

        def chunk(first: Int64Array) -> tuple[Int64Array, Int64Array]:
            batches = order.batch_numbers(int(first), count=_CHUNK)
            positions = batches[:, np.newaxis] * self.batch_size + np.arange(self.batch_size)
            return batches, epochs.at(positions)

        @tf.autograph.experimental.do_not_convert
        def in_chunks(first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            batches, records = tf.numpy_function(
                guard(chunk), [first], [tf.int64, tf.int64], stateful=False
            )
            shape = [_CHUNK, self.batch_size]
            return tf.ensure_shape(batches, [_CHUNK]), tf.ensure_shape(records, shape)

        firsts = tf.data.Dataset.range(order.start, np.iinfo(np.int64).max, _CHUNK)
        return firsts.map(in_chunks).unbatch()
