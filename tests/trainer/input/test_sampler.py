import doctest
from collections import Counter

import numpy as np
import pytest

from components.trainer.input import sampler
from components.trainer.input.sampler import (
    ClassBalancedSampler,
    Int64Array,
    ShuffledSampler,
)

COUNTS = [23, 17, 20, 31, 9]
STARTS = np.cumsum([0, *COUNTS])


def test_docstring_examples() -> None:
    failed, tried = doctest.testmod(sampler)
    assert (failed, tried) == (0, 7)


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


# Records of three classes in random order: 11, 3 and 1 of them, and no label id 2.
LABELS = np.random.default_rng(0).permutation([0] * 11 + [1] * 3 + [3])


def balanced(positions: int = 600, *, seed: int = 3) -> Int64Array:
    return ClassBalancedSampler(LABELS, seed=seed).at(np.arange(positions))


def test_each_round_takes_every_class_in_random_order() -> None:
    turns = [tuple(turn) for turn in LABELS[balanced()].reshape(-1, 3).tolist()]
    assert all(sorted(turn) == [0, 1, 3] for turn in turns)
    # All six orders, 33 times each on average.
    counts = Counter(turns)
    assert len(counts) == 6
    assert min(counts.values()) > 15


def test_a_class_cycles_through_its_records() -> None:
    records = balanced()
    for label, of_class in ((0, 11), (1, 3), (3, 1)):
        stream = records[LABELS[records] == label]
        assert len(stream) == 200
        rounds = [tuple(r) for r in stream[: 200 // of_class * of_class].reshape(-1, of_class)]
        expected = np.flatnonzero(label == LABELS).tolist()
        assert all(sorted(taken) == expected for taken in rounds)
        if of_class > 1:
            assert len(set(rounds)) > 5


def test_the_seed_decides_and_the_epochs_differ() -> None:
    first, second = balanced(30).reshape(2, 15)
    assert first.tolist() == balanced(15).tolist()
    assert first.tolist() != second.tolist()
    assert first.tolist() != balanced(15, seed=4).tolist()


@pytest.mark.parametrize(
    "order", [ClassBalancedSampler(LABELS, seed=1), ShuffledSampler([9, 6], mixed=1, seed=1)]
)
def test_samplers_have_random_access(order: ShuffledSampler | ClassBalancedSampler) -> None:
    whole = order.at(np.arange(5000))
    asked = np.random.default_rng(0).integers(0, 5000, (7, 40))
    assert order.at(asked).tolist() == whole[asked].tolist()


def test_classes_have_independent_random_numbers() -> None:
    # Two classes of ten must not be shuffled alike.
    order = ClassBalancedSampler([0] * 10 + [1] * 10, seed=0)
    records = order.at(np.arange(2000))
    first, second = records[records < 10], records[records >= 10] - 10
    assert 0.05 < (first == second).mean() < 0.15
