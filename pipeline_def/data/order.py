"""The order of training: which records each batch holds, epoch after epoch, on every worker."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import tensorflow as tf

Int64Array = npt.NDArray[np.int64]

_SHUFFLED_AT_ONCE = 1024


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
    balanced: bool = False
    """Take all classes equally often: `BalancedOrder`, not `EpochOrder`."""
    min_crop_area: float = 1.0
    """Smallest area of the windows that are cut out of originals, as a fraction of the image's."""

    @classmethod
    def of_worker(
        cls,
        seed: int,
        step: int,
        worker: tf.distribute.InputContext,
        *,
        flip: bool = False,
        balanced: bool = False,
        min_crop_area: float = 1.0,
    ) -> TrainingOrder:
        """Return the part of one worker, whose replicas take a batch each in every step.

        Args:
            seed: same seed, same order.
            step: number of steps that were done before.
            worker: which one, of how many.
            flip: mirror half of the images.
            balanced: take all classes equally often.
            min_crop_area: of the windows that are cut out of originals.
        """
        replicas = worker.num_replicas_in_sync // worker.num_input_pipelines
        return cls(
            seed=seed,
            start=step * replicas,
            pipelines=worker.num_input_pipelines,
            pipeline=worker.input_pipeline_id,
            flip=flip,
            balanced=balanced,
            min_crop_area=min_crop_area,
        )

    def batch_numbers(self, first: int, *, count: int) -> Int64Array:
        """Number `count` batches of this pipeline from its `first` on, among those of all."""
        return (first + np.arange(count)) * self.pipelines + self.pipeline


class RecordOrder(Protocol):
    """An endless sequence of records."""

    def at(self, positions: Int64Array) -> Int64Array:
        """Return the records at these positions of the sequence, an array of the same shape."""


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


class BalancedOrder:
    """An order that takes all classes equally often, however many records each of them has.

    The classes come by turns: in every turn each of them once, in an order of its own. A class
    gives its records in the same manner: in every round each of them once, in an order of its own.
    So at any time all classes have been taken equally often to within one, and within a class so
    have all of its records. An epoch, as many positions as there are records, repeats records of
    rare classes and leaves out some of frequent ones, each epoch others. Records lie anywhere in
    the shards, which are read from memory or a disk that is fast at that.

    Four records of class 0 and one of class 1, number 3, which comes once in every turn of two.

    >>> order = BalancedOrder([0, 0, 0, 1, 0], seed=3)
    >>> order.at(np.arange(10)).reshape(2, 5)  # two epochs
    array([[3, 0, 1, 3, 2],
           [3, 4, 3, 3, 1]])

    Any position can be asked for, as with `EpochOrder`:

    >>> order.at(np.array([7, 8]))
    array([3, 3])
    """

    def __init__(self, labels: npt.ArrayLike, *, seed: int) -> None:
        """Order records of these label ids, by `seed`; ids that no record has are left out."""
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
    """Return the places of each of the `numbers` that occur, from the least one on."""
    places = np.argsort(numbers, kind="stable")
    return np.split(places, np.flatnonzero(np.diff(numbers[places])) + 1)


class _Rounds:
    """Endless rounds through some numbers, each round in an order of its own."""

    def __init__(self, numbers: Int64Array, *, seed: tuple[int, int]) -> None:
        self._numbers = numbers
        self._seed = seed
        # A generator costs 20 us: few numbers are shuffled for many rounds at once.
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
    """Look positions up in an endless sequence, given block by block of `length`."""
    blocks, within = np.divmod(positions, length)
    found = np.empty_like(positions)
    for number in set(blocks.ravel().tolist()):
        chosen = blocks == number
        found[chosen] = block(number)[within[chosen]]
    return found
