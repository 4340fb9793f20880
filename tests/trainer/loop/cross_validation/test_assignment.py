"""Which fold judges each image."""

import hashlib

import numpy as np
import pytest

from components.trainer.loop.cross_validation.assignment import assign_folds


def digests(count: int) -> list[str]:
    return [hashlib.sha256(str(number).encode()).hexdigest() for number in range(count)]


@pytest.mark.parametrize("folds", [2, 5, 20])
def test_classes_are_divided_evenly(folds: int) -> None:
    labels = np.repeat([0, 1, 2], [70, 55, 35])
    found = assign_folds(labels, digests(160), folds)
    counts = np.array([np.bincount(found[labels == label], minlength=folds) for label in range(3)])
    assert np.ptp(counts, axis=1).max() <= 1
    assert np.ptp(counts.sum(axis=0)) <= 2


def test_copies_and_groups_stay_together() -> None:
    groups = digests(40) * 2 + ["film"] * 12
    labels = np.arange(92) % 3
    found = assign_folds(labels, groups, 5)
    together: dict[str, set[int]] = {}
    for group, fold in zip(groups, found.tolist(), strict=True):
        together.setdefault(group, set()).add(fold)
    assert {len(folds) for folds in together.values()} == {1}
    assert np.ptp(np.bincount(found, minlength=5)) <= 4


def test_the_order_of_the_images_does_not_matter() -> None:
    labels, groups = np.arange(50) % 4, digests(50)
    order = np.random.default_rng(0).permutation(50)
    shuffled = assign_folds(labels[order], [groups[row] for row in order], 5)
    np.testing.assert_array_equal(assign_folds(labels, groups, 5)[order], shuffled)
