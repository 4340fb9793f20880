"""Which records each training batch holds, epoch after epoch, on every worker."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import tensorflow as tf

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TrainingOrder:
    """How training reads the examples: forever, in full batches only.

    Input pipelines take batches in turn, so each training step has the same examples for any
    number of pipelines:

    >>> TrainingOrder(pipelines=2, pipeline=1).batch_numbers(0, count=4)
    array([1, 3, 5, 7])
    """

    seed: int = 0
    """Same seed, same order."""
    start: int = 0
    """Batches that this pipeline delivered before the run was resumed."""
    pipelines: int = 1
    """Input pipelines that share the examples, one per worker of distributed training."""
    pipeline: int = 0
    """Index of this pipeline, from 0."""

    def for_worker(self, step: int, worker: tf.distribute.InputContext) -> TrainingOrder:
        """Return the order of `worker` after `step` training steps; each replica takes a batch."""
        return dataclasses.replace(
            self,
            start=step * (worker.num_replicas_in_sync // worker.num_input_pipelines),
            pipelines=worker.num_input_pipelines,
            pipeline=worker.input_pipeline_id,
        )

    def batch_numbers(self, first: int, *, count: int) -> Int64Array:
        """Return the global numbers of `count` batches of this pipeline, from its `first`."""
        return (first + np.arange(count)) * self.pipelines + self.pipeline


class ShuffledSampler:
    """Takes every record once per epoch, in a new order each epoch.

    It shuffles the shards, then the records of `mixed` shards at a time. As shards hold records in
    order of hashes, that is as good as a full shuffle, and reads each file once from a slow disk.

    Two shards of 3 and 2 records, one at a time: records 0 to 2 stay together, and so do 3 and 4.

    >>> sampler = ShuffledSampler([3, 2], mixed=1, seed=3)
    >>> sampler.at(np.arange(10)).reshape(2, 5)  # two epochs
    array([[3, 4, 0, 2, 1],
           [0, 1, 2, 3, 4]])
    >>> sampler.at(np.array([7, 8]))
    array([2, 3])
    """

    def __init__(self, counts: Sequence[int], *, mixed: int, seed: int) -> None:
        """Shuffle shards of `counts` records, `mixed` at a time, by `seed`."""
        self._ends = np.cumsum(counts)
        self._mixed = mixed
        self._seed = seed
        self._of_epoch = functools.lru_cache(maxsize=2)(self._shuffle)

    def at(self, positions: Int64Array) -> Int64Array:
        """Return the records at these positions of the endless sequence of epochs."""
        epochs, within = np.divmod(positions, int(self._ends[-1]))
        records = np.empty_like(positions)
        for epoch in set(epochs.ravel().tolist()):
            chosen = epochs == epoch
            records[chosen] = self._of_epoch(epoch)[within[chosen]]
        return records

    def _shuffle(self, epoch: int) -> Int64Array:
        random = np.random.default_rng([self._seed, epoch])
        starts = np.concatenate([[0], self._ends[:-1]])
        shards = random.permutation(len(starts))
        parts = []
        for first in range(0, len(shards), self._mixed):
            group = shards[first : first + self._mixed]
            records = np.concatenate([np.arange(starts[s], self._ends[s]) for s in group])
            parts.append(random.permutation(records))
        return np.concatenate(parts)
