"""Accuracy on groups of images that have something in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from components.evaluation.metrics.slice_metrics import SliceMetrics
from components.report.facts import ReportFacts
from components.report.page.drawing import Drawing
from components.report.page.whiskers import Whisker, draw_whiskers

_DRAWN = 20
_MOST = 100

Slicings = Mapping[str, Sequence[SliceMetrics]]


def describe_slices(facts: ReportFacts) -> dict[str, Any]:
    """Draw each slicing that says something, and list its slices."""
    slicings: dict[str, list[SliceMetrics]] = {}
    for part in facts.comparison.slices:
        slicings.setdefault(part.slicing, []).append(part)
    repeated = [name for name in slicings if _repeats_classes(name, slicings)]
    return {
        "single": {name: of[0].value for name, of in slicings.items() if len(of) == 1},
        "repeated": repeated,
        "drawn": [
            _describe(name, slices)
            for name, slices in slicings.items()
            if len(slices) > 1 and name not in repeated
        ],
    }


def _repeats_classes(slicing: str, slicings: Slicings) -> bool:
    """Say whether each slice is a class by another name, such as its folder."""
    slices, classes = slicings[slicing], slicings.get("class", ())
    several = slicing != "class" and len(slices) > 1
    return several and _numbers(slices) == _numbers(classes)


def _numbers(slices: Sequence[SliceMetrics]) -> list[tuple[int, float, float]]:
    return sorted((s.examples, s.accuracy, s.baseline or 0.0) for s in slices)


def _describe(slicing: str, slices: Sequence[SliceMetrics]) -> dict[str, Any]:
    """Keep the order of a few; of many, begin with the least accurate."""
    many = len(slices) > _DRAWN
    if many:
        slices = sorted(slices, key=lambda part: (math.isnan(part.accuracy), part.accuracy))
    return {
        "name": slicing,
        "drawing": _draw(slicing, slices),
        "listed": slices[:_MOST],
        "total": len(slices),
        "order": "the least accurate first" if many else "",
        "compared": any(part.baseline is not None for part in slices),
    }


def _draw(slicing: str, slices: Sequence[SliceMetrics]) -> Drawing:
    rows = [
        Whisker(
            part.value,
            part.accuracy,
            part.interval,
            math.nan if part.baseline is None else part.baseline,
        )
        for part in slices[:_DRAWN]
    ]
    least = f", the {_DRAWN} least accurate of {len(slices):,}" if len(slices) > _DRAWN else ""
    caption = f"Accuracy by {slicing} with 95 % intervals{least}"
    return draw_whiskers(rows, axis="accuracy", caption=caption)
