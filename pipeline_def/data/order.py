"""The order of training: which records each batch holds, epoch after epoch, on every worker."""

from __future__ import annotations

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
    """How training goes through the examples: for ever, in full batches only.

    Batches go to the pipelines in turn, so that each step has the same examples however many
    pipelines there are:

    >>> TrainingOrder(pipelines=2, pipeline=1).batch_numbers(0, count=4)
    array([1, 3, 5, 7])
    """

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

    def batch_numbers(self, first: int, *, count: int) -> Int64Array:
        """Number `count` batches of this pipeline from its `first` on, among those of all."""
        return (first + np.arange(count)) * self.pipelines + self.pipeline


class EpochOrder:
    """The order of records in each epoch: every record once, and each epoch in its own order.

    First the shards are shuffled, then all records of `mixed` shards at a time. As records lie in
    shards in the order of hashes, that is as good as shuffling all of them, and reads files of any
    size from a slow disk once.

    Two shards of 3 and 2 records, one at a time: records 0 to 2 stay together, and so do 3 and 4.

    >>> order = EpochOrder([3, 2], mixed=1, seed=3)
    >>> order.at(np.arange(10)).reshape(2, 5)  # two epochs
    array([[3, 4, 0, 2, 1],
           [0, 1, 2, 3, 4]])

    Any position of any epoch can be asked for, which is how training goes on after a kill:

    >>> order.at(np.array([7, 8]))
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
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            records[chosen] = self._of_epoch(int(epoch))[within[chosen]]
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
