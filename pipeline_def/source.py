"""What is read, in which order, and which window of each image: common to both readers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipeline_def.config import TransformConfig
from pipeline_def.input_config import InputConfig
from pipeline_def.records import Shards


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


@dataclass(frozen=True)
class Source:
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
    def threads(self) -> int:
        """Threads that decode."""
        return self.options.threads or len(os.sched_getaffinity(0))

    def map(self, dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
        """Apply `function` to several batches at a time, in their order if that is asked for."""
        deterministic = self.options.deterministic or self.order is None
        return dataset.map(function, num_parallel_calls=self.threads, deterministic=deterministic)


def corners_of(batch: tf.Tensor, records: tf.Tensor, source: Source) -> tf.Tensor:
    """Draw the windows of a batch, by the seed and the batch's number alone."""
    if not (source.config.margin and source.order):
        return middle_corners(records, source.config)
    return tf.random.stateless_uniform(
        [source.batch_size, 2],
        [source.order.seed, batch],
        maxval=source.config.margin + 1,
        dtype=tf.int32,
    )


def middle_corners(batch: tf.Tensor, config: TransformConfig) -> tf.Tensor:
    """Return the corners of the windows in the middle, one for each row of `batch`."""
    return tf.fill([tf.shape(batch)[0], 2], config.margin // 2)
