"""Metrics on slices of the examples, and the classes that are confused most."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from components.evaluation.metrics.counts import OVERALL, SliceKey
from components.evaluation.metrics.curves import mean_auc
from components.evaluation.metrics.intervals import Interval, paired_interval, wilson_interval
from components.evaluation.metrics.predictions import Flags, Ints, Predictions

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


def measure_slices(
    slices: Mapping[str, tuple[str, ...]], right: Flags, baseline: Flags | None
) -> tuple[SliceMetrics, ...]:
    """Measure the accuracy on every slice, in the order of slicings, then of values."""
    measured: list[SliceMetrics] = []
    for slicing, texts in slices.items():
        rows: dict[str, list[int]] = {}
        for row, value in enumerate(texts):
            rows.setdefault(value, []).append(row)
        for value in sorted(rows, key=_order):
            hits = right[rows[value]]
            before = None if baseline is None else baseline[rows[value]]
            of_slice = SliceMetrics(
                slicing=slicing,
                value=value,
                examples=len(hits),
                accuracy=float(hits.mean()),
                interval=wilson_interval(hits),
                baseline=None if before is None else float(before.mean()),
                change=None if before is None else paired_interval(hits, before),
            )
            measured.append(of_slice)
    return tuple(measured)


def _order(value: str) -> tuple[list[tuple[str, int]], str]:
    """Sort by number: 64 to 127 comes before 128 to 255, and under 64 before both."""
    parts = re.findall(r"(\D*)(\d*)", value.removeprefix("under "))
    return [(text, int(digits) if digits else -1) for text, digits in parts], value


def measure_slice_areas(
    predictions: Predictions, slices: Mapping[str, Sequence[str]]
) -> dict[SliceKey, float]:
    """Return `mean_auc`, which does not follow from counts, overall and on each slice."""
    areas = {OVERALL: mean_auc(predictions.ids, predictions.probabilities)}
    for slicing, texts in slices.items():
        values, of_example = np.unique(np.array(texts, object), return_inverse=True)
        order = np.argsort(of_example, kind="stable")
        ends = np.searchsorted(of_example[order], np.arange(1, len(values)))
        for value, rows in zip(values, np.split(order, ends), strict=True):
            areas[slicing, value] = mean_auc(predictions.ids[rows], predictions.probabilities[rows])
    return areas


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
