from __future__ import annotations

import doctest

import numpy as np

from pipeline_def.data import order
from pipeline_def.data.order import EpochOrder, TrainingOrder

COUNTS = [23, 17, 20, 31, 9]
STARTS = np.cumsum([0, *COUNTS])


def test_the_examples_in_the_docstrings_hold() -> None:
    failed, tried = doctest.testmod(order)
    assert (failed, tried) == (0, 4)


def epochs(*, mixed: int, seed: int = 3) -> list[list[int]]:
    found = EpochOrder(COUNTS, mixed=mixed, seed=seed).at(np.arange(300))
    return [epoch.tolist() for epoch in found.reshape(3, 100)]


def test_each_epoch_holds_every_record_once_in_an_order_of_its_own() -> None:
    first, second, third = epochs(mixed=2)
    assert sorted(first) == sorted(second) == sorted(third) == list(range(100))
    assert len({tuple(first), tuple(second), tuple(third), tuple(range(100))}) == 4
    assert epochs(mixed=2, seed=4)[0] != first


def test_shards_are_read_so_many_at_a_time() -> None:
    for epoch in epochs(mixed=2):
        shards = np.searchsorted(STARTS, epoch, side="right") - 1
        open_shards: set[int] = set()
        changes = 0
        for shard in shards.tolist():
            if shard not in open_shards:
                changes += 1
                if len(open_shards) == 2:
                    open_shards.clear()
                open_shards.add(shard)
        assert changes == len(COUNTS)


def test_workers_take_the_batches_of_one_in_turn() -> None:
    alone = TrainingOrder(start=4).batch_numbers(4, count=6).tolist()
    parts = [TrainingOrder(pipelines=2, pipeline=i).batch_numbers(2, count=3) for i in range(2)]
    assert np.stack(parts, axis=1).ravel().tolist() == alone
