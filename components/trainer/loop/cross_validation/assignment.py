"""Which fold judges each image: classes evenly, copies and groups together."""

import collections
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def assign_folds(
    labels: npt.NDArray[np.int64], groups: Sequence[str], folds: int
) -> npt.NDArray[np.int64]:
    """Return the fold of each image, from 0, [images].

    The largest groups come first, in the order of their names, which are digests. Each goes to the
    fold that has the fewest images of its classes, then to the one with the fewest images.

    Args:
        labels: label id of each image.
        groups: what each image has in common with those that must stay with it.
        folds: number of folds.

    >>> assign_folds(np.array([0, 0, 0, 0, 1, 1]), ["a", "b", "c", "a", "e", "f"], 2)
    array([0, 1, 1, 0, 0, 1])
    """
    members: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    counts = np.zeros((folds, max(labels.tolist(), default=0) + 1), np.int64)
    found = np.empty(len(labels), np.int64)
    for _, rows in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])):
        of_group = collections.Counter(labels[rows].tolist())
        of_classes = counts[:, list(of_group)].sum(axis=1)
        fold = int(np.lexsort((counts.sum(axis=1), of_classes))[0])
        found[rows] = fold
        for label, number in of_group.items():
            counts[fold, label] += number
    return found
