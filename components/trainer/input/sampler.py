"""Which records each training batch holds, epoch after epoch, on every worker."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import tensorflow as tf

Int64Array = npt.NDArray[np.int64]

_SHUFFLED_AT_ONCE = 1024


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
    flip: bool = False
    """Mirror half of the images left to right as they are decoded, chosen by the seed."""
    balanced: bool = False
    """Take all classes equally often: `ClassBalancedSampler` instead of `ShuffledSampler`."""

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
        return _look_up(positions, self._of_epoch, length=int(self._ends[-1]))

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


class ClassBalancedSampler:
    """Takes all classes equally often, however many records each has.

    Each round takes every class once, in random order, and each class cycles through its own
    records in the same way. An epoch has as many positions as there are records: it repeats records
    of rare classes and skips some of frequent ones, different ones each epoch. Records are taken
    from anywhere in the shards, so these should be in memory or on a fast disk.

    Four records of class 0 and one of class 1, number 3, which each round of two takes:

    >>> sampler = ClassBalancedSampler([0, 0, 0, 1, 0], seed=3)
    >>> sampler.at(np.arange(10)).reshape(2, 5)  # two epochs
    array([[3, 0, 1, 3, 2],
           [3, 4, 3, 3, 1]])
    >>> sampler.at(np.array([7, 8]))
    array([3, 3])
    """

    def __init__(self, labels: npt.ArrayLike, *, seed: int) -> None:
        """Order records of these label ids, by `seed`; ids without records are skipped."""
        of_classes = _split_by(np.asarray(labels))
        self._turns = _Rounds(np.arange(len(of_classes)), seed=(seed, 0))
        self._classes = [
            _Rounds(of_class, seed=(seed, 1 + number)) for number, of_class in enumerate(of_classes)
        ]

    def at(self, positions: Int64Array) -> Int64Array:
        """Return the records at these positions of the endless sequence."""
        classes, turns = self._turns.at(positions), positions // len(self._classes)
        records = np.empty_like(positions)
        for chosen in _split_by(classes.ravel()):
            number = classes.flat[chosen[0]]
            records.flat[chosen] = self._classes[number].at(turns.flat[chosen])
        return records


def _split_by(numbers: Int64Array) -> list[Int64Array]:
    """Return the indices of each distinct number, in ascending order of the numbers."""
    places = np.argsort(numbers, kind="stable")
    return np.split(places, np.flatnonzero(np.diff(numbers[places])) + 1)


class _Rounds:
    """Endless rounds through some numbers, each round in a new order."""

    def __init__(self, numbers: Int64Array, *, seed: tuple[int, int]) -> None:
        self._numbers = numbers
        self._seed = seed
        # A generator costs 20 us, so few numbers are shuffled for many rounds at once.
        self._rounds = max(1, _SHUFFLED_AT_ONCE // len(numbers))
        self._of_block = functools.lru_cache(maxsize=2)(self._shuffle)

    def at(self, positions: Int64Array) -> Int64Array:
        length = self._rounds * len(self._numbers)
        return _look_up(positions, self._of_block, length=length)

    def _shuffle(self, block: int) -> Int64Array:
        random = np.random.default_rng([*self._seed, block])
        rounds = np.tile(self._numbers, (self._rounds, 1))
        return random.permuted(rounds, axis=1).ravel()


def _look_up(
    positions: Int64Array, block: Callable[[int], Int64Array], *, length: int
) -> Int64Array:
    """Return the numbers at positions of an endless sequence of blocks of `length`."""
    blocks, within = np.divmod(positions, length)
    found = np.empty_like(positions)
    for number in set(blocks.ravel().tolist()):
        chosen = blocks == number
        found[chosen] = block(number)[within[chosen]]
    return found
