"""What is read, in which order, and which window of each image: common to both readers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.data.shards import Shards


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
    flip: bool = False
    """Mirror half of the images left to right, by the seed, as they are decoded."""

    @classmethod
    def of_worker(
        cls, seed: int, step: int, worker: tf.distribute.InputContext, *, flip: bool = False
    ) -> TrainingOrder:
        """Return the part of one worker, whose replicas take a batch each in every step.

        Args:
            seed: same seed, same order.
            step: number of steps that were done before.
            worker: which one, of how many.
            flip: mirror half of the images.
        """
        replicas = worker.num_replicas_in_sync // worker.num_input_pipelines
        return cls(
            seed=seed,
            start=step * replicas,
            pipelines=worker.num_input_pipelines,
            pipeline=worker.input_pipeline_id,
            flip=flip,
        )


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
    def size(self) -> int:
        """Side of the images that the model sees, pixels."""
        return self.config.seen_size

    @property
    def draws_windows(self) -> bool:
        """Whether images are cut out or mirrored at random."""
        return self.order is not None and (self.config.margin > 0 or self.order.flip)

    @property
    def threads(self) -> int:
        """Threads that decode."""
        return self.options.threads or len(os.sched_getaffinity(0))

    def map(self, dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
        """Apply `function` to several batches at a time, in their order if that is asked for."""
        deterministic = self.options.deterministic or self.order is None
        return dataset.map(function, num_parallel_calls=self.threads, deterministic=deterministic)


def windows_of(batch: tf.Tensor, records: tf.Tensor, source: ReadPlan) -> tf.Tensor:
    """Draw the windows of a batch, by the seed and the batch's number alone.

    Returns:
        int32 [batch, 3]: top and left, 0 to `config.margin`, and 1 where the image is mirrored.
    """
    order, margin = source.order, source.config.margin
    if order is None or not source.draws_windows:
        return middle_windows(records, source.config)
    limits = tf.constant([margin + 1, margin + 1, 1 + order.flip], tf.float32)
    draws = tf.random.stateless_uniform([source.batch_size, 3], [order.seed, batch])
    return tf.cast(draws * limits, tf.int32)


def middle_windows(batch: tf.Tensor, config: TransformConfig) -> tf.Tensor:
    """Return the windows in the middle, not mirrored, one for each row of `batch`."""
    middle = config.margin // 2
    return tf.tile(tf.constant([[middle, middle, 0]]), [tf.shape(batch)[0], 1])
