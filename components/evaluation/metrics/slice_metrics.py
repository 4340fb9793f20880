"""Metrics on slices of the examples, and the classes that are confused most."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from components.evaluation.metrics.intervals import Interval, paired_interval, proportion_interval
from components.evaluation.metrics.predictions import Flags, Ints

SliceKey: TypeAlias = tuple[str, str]
"""Slicing and value, such as ("format", "png")."""

OVERALL: SliceKey = ("", "")
"""The slice of all examples."""

_MOST_CONFUSED = 20


@dataclass(frozen=True)
class SliceMetrics:
    """Accuracy on a slice."""

    slicing: str
    """Such as "size"."""
    value: str
    """Such as "32 to 63 px"."""
    examples: int
    accuracy: float
    interval: Interval
    baseline: float | None
    """Accuracy of the model in use on the same examples."""
    change: Interval | None
    """Interval of accuracy minus baseline, paired by example."""


@dataclass(frozen=True)
class ConfusedPair:
    """Examples of one class that were predicted as another."""

    label: str
    predicted: str
    examples: int
    share: float
    """Fraction of the examples of `label`, 0 to 1."""


def find_rows(slices: Mapping[str, Sequence[str]]) -> dict[SliceKey, list[int]]:
    """Return the rows of the examples in each slice; `slices` is slicing → value of each."""
    rows: dict[SliceKey, list[int]] = {}
    for slicing, values in slices.items():
        for row, value in enumerate(values):
            rows.setdefault((slicing, value), []).append(row)
    return rows


def measure_slices(
    slices: Mapping[str, Sequence[str]], right: Flags, baseline: Flags | None
) -> tuple[SliceMetrics, ...]:
    """Measure the accuracy on every slice, in the order of slicings, then of values."""
    slicings, measured = list(slices), []
    found = find_rows(slices)
    for slicing, value in sorted(found, key=lambda key: (slicings.index(key[0]), _order(key[1]))):
        rows = found[slicing, value]
        hits, before = right[rows], None if baseline is None else baseline[rows]
        of_slice = SliceMetrics(
            slicing=slicing,
            value=value,
            examples=len(hits),
            accuracy=float(hits.mean()),
            interval=proportion_interval(int(hits.sum()), len(hits)),
            baseline=None if before is None else float(before.mean()),
            change=None if before is None else paired_interval(hits, before),
        )
        measured.append(of_slice)
    return tuple(measured)


def _order(value: str) -> tuple[list[tuple[str, int]], str]:
    """Sort by number: 64 to 127 comes before 128 to 255, and under 64 before both."""
    parts = re.findall(r"(\D*)(\d*)", value.removeprefix("under "))
    return [(text, int(digits) if digits else -1) for text, digits in parts], value


def find_confused(labels: tuple[str, ...], confusion: Ints) -> tuple[ConfusedPair, ...]:
    """Return at most 20 pairs, those with most examples first, then the largest fraction.

    Args:
        labels: in ascending order, which breaks ties.
        confusion: [classes, classes], examples; rows are true, columns predicted.
    """
    truth, predicted = np.nonzero(confusion * ~np.eye(len(labels), dtype=bool))
    examples = confusion[truth, predicted]
    fraction = examples / confusion.sum(axis=1)[truth]
    first = np.lexsort((predicted, truth, -fraction, -examples))[:_MOST_CONFUSED]
    return tuple(
        ConfusedPair(labels[truth[i]], labels[predicted[i]], int(examples[i]), float(fraction[i]))
        for i in first
    )
