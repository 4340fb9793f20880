"""Counts of a model's answers on all examples and on each slice of them, all slices at once.

A batch is counted in a few calls of NumPy, however many slices its examples are in; the counts of
batches, shards and machines add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from components.evaluation.metrics.metric_counts import TOP, MetricCounts
from components.evaluation.metrics.predictions import EDGES, Answers, Floats, Ints

Place: TypeAlias = tuple[str, str]
"""Slicing and value, such as ("format", "png")."""

EVERYTHING: Place = ("", "")
"""The slice of all examples."""

_BINS = len(EDGES) - 1


@dataclass(frozen=True, eq=False)
class SlicedCounts:
    """Sums over a set of examples, for each slice; `MetricCounts` has them for one."""

    places: tuple[Place, ...]
    """[slices], ascending; the first one is `EVERYTHING`."""
    cells: Ints
    """[4, cells]: index into `places`, column of the right answer, column of the most probable one,
    examples; ascending. -1 is a label that the model does not know."""
    bins: Floats
    """[slices, 3, bins], as in `MetricCounts`."""
    top: Floats
    """[slices, metrics], likewise."""
    loss: Floats
    """[slices], nats."""

    @classmethod
    def of(cls, answers: Answers, slices: Mapping[str, Sequence[str]]) -> SlicedCounts:
        """Count every example in all of its slices.

        Args:
            answers: of a model.
            slices: slicing → the value of each example.
        """
        examples = len(answers.truth)
        columns = [[EVERYTHING] * examples]
        columns += [[(slicing, text) for text in texts] for slicing, texts in slices.items()]
        places = sorted({place for column in columns for place in column})
        rows = {place: row for row, place in enumerate(places)}
        # One entry for each slice that an example is in.
        row = np.array([rows[place] for column in columns for place in column], np.int64)
        entry = np.tile(np.arange(examples), len(columns))
        truth, predicted = (answers.classes[of] for of in (answers.truth, answers.predicted))
        of_bin = (None, answers.confidence[entry], answers.right[entry])
        in_bin = row * _BINS + answers.bins[entry]
        bins = [np.bincount(in_bin, weights, len(places) * _BINS) for weights in of_bin]
        rank = answers.rank[entry]
        top = [np.bincount(row[rank < most], None, len(places)) for most in TOP.values()]
        return cls(
            places=tuple(places),
            cells=_count_cells(row, truth[entry], predicted[entry], np.ones(len(row), np.int64)),
            bins=np.stack(bins).reshape(3, len(places), _BINS).swapaxes(0, 1).astype(float),
            top=np.stack(top, axis=1).astype(float),
            loss=np.bincount(row, answers.loss[entry], len(places)).astype(float),
        )

    def of_place(self, index: int) -> MetricCounts:
        """Return the counts of one slice, by its index in `places`."""
        truth, predicted, examples = self.cells_of(index)
        classes, columns = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
        of_truth, of_predicted = np.split(columns, 2)
        right = examples * (truth == predicted)
        counted = (of_truth, examples), (of_predicted, examples), (of_truth, right)
        return MetricCounts(
            classes=classes,
            counts=np.stack([np.bincount(by, number, len(classes)) for by, number in counted]),
            bins=self.bins[index],
            top=self.top[index],
            loss=float(self.loss[index]),
        )

    def cells_of(self, index: int) -> Ints:
        """Return the confusion matrix of one slice, [3, cells]: `cells` without their slice."""
        start, end = np.searchsorted(self.cells[0], [index, index + 1])
        return self.cells[1:, start:end]


def _count_cells(row: Ints, truth: Ints, predicted: Ints, examples: Ints) -> Ints:
    """Add up the examples of equal cells, [4, cells], in ascending order."""
    # One number for a cell sorts ten times as fast as three. -1 becomes 0.
    most = int(max(truth.max(initial=0), predicted.max(initial=0))) + 2
    keys, places = np.unique((row * most + truth + 1) * most + predicted + 1, return_inverse=True)
    rest, predicted = np.divmod(keys, most)
    row, truth = np.divmod(rest, most)
    total = np.bincount(places, examples, len(keys)).astype(np.int64)
    return np.stack([row, truth - 1, predicted - 1, total])


def add_up(parts: Sequence[SlicedCounts]) -> SlicedCounts:
    """Return the counts of several sets of examples, at least one, as if they were one."""
    places = sorted({place for part in parts for place in part.places})
    rows = {place: row for row, place in enumerate(places)}
    bins, top = np.zeros((len(places), 3, _BINS)), np.zeros((len(places), len(TOP)))
    loss, cells = np.zeros(len(places)), []
    for part in parts:
        moved = np.array([rows[place] for place in part.places], np.int64)
        bins[moved] += part.bins
        top[moved] += part.top
        loss[moved] += part.loss
        cells.append(np.concatenate([moved[part.cells[:1]], part.cells[1:]]))
    return SlicedCounts(
        tuple(places), _count_cells(*np.concatenate(cells, axis=1)), bins, top, loss
    )
