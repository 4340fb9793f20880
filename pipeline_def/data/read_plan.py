"""What to read and how: the arguments of `make_dataset`, and the batches that follow from them."""

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

# Batches sampled in one Python call; a call per batch would cost more than copying small images.
_CHUNK = 64


@dataclass(frozen=True)
class ReadPlan:
    """The arguments of `make_dataset`."""

    shards: Shards
    config: TransformConfig
    feature_spec: Mapping[str, Any]
    batch_size: int
    options: InputConfig
    order: TrainingOrder | None

    @property
    def training(self) -> TrainingOrder:
        """The order, which only training has."""
        assert self.order
        return self.order

    @property
    def crops_originals(self) -> bool:
        """Whether training takes random crops of originals."""
        return self._has_originals and self.order is not None

    @property
    def serves_originals(self) -> bool:
        """Whether originals are read as the served model sees them."""
        return self._has_originals and self.order is None

    @property
    def _has_originals(self) -> bool:
        return self.config.storage == "originals" and self.shards.split == TRAIN

    @property
    def random_windows(self) -> bool:
        """Whether images are cropped or mirrored at random."""
        if self.order is None:
            return False
        return self.crops_originals or self.config.margin > 0 or self.order.flip

    def map(self, records: tf.data.Dataset, load: Callable[..., Any]) -> tf.data.Dataset:
        """Load several batches in parallel, in order if `options.deterministic` asks for that."""
        return records.map(
            # AutoGraph would take 0.3 s to find nothing to convert.
            tf.autograph.experimental.do_not_convert(load),
            num_parallel_calls=self.options.threads or available_cpus(),
            deterministic=self.options.deterministic or self.order is None,
        )

    def draw_windows(self, batch: tf.Tensor, records: tf.Tensor) -> tf.Tensor:
        """Return the window of each record, which depends on the seed and the batch number only.

        Returns:
            int32 [batch, 3]: top and left, 0 to `config.margin`, and 1 to mirror the image. Without
            an order, the central windows. For crops of originals, float32 [batch, 5]: the random
            numbers of `CropRule.draw`.

        >>> shards = Shards("examples", "train", {})
        >>> config = TransformConfig(size=24, margin=8)
        >>> plan = ReadPlan(shards, config, {}, 3, InputConfig(), TrainingOrder(flip=True))
        >>> plan.draw_windows(tf.constant(5, tf.int64), tf.range(3)).numpy().tolist()
        [[4, 1, 0], [0, 6, 1], [4, 5, 0]]
        >>> plan = ReadPlan(shards, config, {}, 3, InputConfig(), order=None)
        >>> plan.draw_windows(tf.constant(5, tf.int64), tf.range(2)).numpy().tolist()
        [[4, 4, 0], [4, 4, 0]]
        """
        margin = self.config.margin
        if not self.random_windows:
            center = tf.constant([[margin // 2, margin // 2, 0]])
            return tf.tile(center, [tf.shape(records)[0], 1])
        seed = [self.training.seed, batch]
        if self.crops_originals:
            return tf.random.stateless_uniform([self.batch_size, NUMBERS], seed)
        limits = tf.constant([margin + 1, margin + 1, 1 + self.training.flip], tf.float32)
        numbers = tf.random.stateless_uniform([self.batch_size, 3], seed)
        return tf.cast(numbers * limits, tf.int32)

    def sample_records(self, labels: Int64Array) -> tf.data.Dataset:
        """Return (number of the batch, its record numbers int64 [batch]).

        A balanced order needs the `labels` of all records.
        """
        order = self.order
        if order is None:
            return tf.data.Dataset.range(self.shards.total).batch(self.batch_size).enumerate()
        sampler = self._sampler(order, labels)

        def sample(first: Int64Array) -> tuple[Int64Array, Int64Array]:
            batches = order.batch_numbers(int(first), count=_CHUNK)
            positions = batches[:, np.newaxis] * self.batch_size + np.arange(self.batch_size)
            return batches, sampler.at(positions)

        @tf.autograph.experimental.do_not_convert
        def in_chunks(first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            batches, records = tf.numpy_function(
                guard(sample), [first], [tf.int64, tf.int64], stateful=False
            )
            shape = [_CHUNK, self.batch_size]
            return tf.ensure_shape(batches, [_CHUNK]), tf.ensure_shape(records, shape)

        firsts = tf.data.Dataset.range(order.start, np.iinfo(np.int64).max, _CHUNK)
        return firsts.map(in_chunks).unbatch()

    def _sampler(self, order: TrainingOrder, labels: Int64Array) -> Sampler:
        if order.balanced:
            return ClassBalancedSampler(labels, seed=order.seed)
        counts = list(self.shards.counts.values())
        return ShuffledSampler(counts, mixed=self.options.interleave, seed=order.seed)
