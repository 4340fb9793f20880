import doctest

import numpy as np

from components.trainer.input import sampler
from components.trainer.input.sampler import ShuffledSampler

COUNTS = [23, 17, 20, 31, 9]
STARTS = np.cumsum([0, *COUNTS])


def test_docstring_examples() -> None:
    failed, tried = doctest.testmod(sampler)
    assert (failed, tried) == (0, 4)


def epochs(*, mixed: int, seed: int = 3) -> list[list[int]]:
    found = ShuffledSampler(COUNTS, mixed=mixed, seed=seed).at(np.arange(300))
    return [epoch.tolist() for epoch in found.reshape(3, 100)]


def test_each_epoch_takes_every_record_once_in_a_new_order() -> None:
    first, second, third = epochs(mixed=2)
    assert sorted(first) == sorted(second) == sorted(third) == list(range(100))
    assert len({tuple(first), tuple(second), tuple(third), tuple(range(100))}) == 4
    assert epochs(mixed=2, seed=4)[0] != first


def test_shards_are_mixed_two_at_a_time() -> None:
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


def test_records_are_found_in_any_order() -> None:
    order = ShuffledSampler([9, 6], mixed=1, seed=1)
    whole = order.at(np.arange(5000))
    asked = np.random.default_rng(0).integers(0, 5000, (7, 40))
    assert order.at(asked).tolist() == whole[asked].tolist()
