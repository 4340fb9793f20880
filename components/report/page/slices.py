"""Accuracy on groups of images that have something in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from components.evaluation.classification_metrics import SliceMetrics
from components.report.facts import ReportFacts
from components.report.page.elements import (
    between,
    clip,
    details,
    figure,
    figures,
    first_of,
    number,
    paragraph,
    plain,
    signed,
    table,
    text,
)
from components.report.page.whiskers import Whisker, draw_whiskers

_DRAWN = 20
_MOST = 100


def write_slices(facts: ReportFacts) -> str:
    """Write a figure and a table for each slicing."""
    slicings = dict.fromkeys(part.slicing for part in facts.comparison.slices)
    if not slicings:
        return paragraph("The images were not sliced.")
    parts = {
        slicing: [s for s in facts.comparison.slices if s.slicing == slicing]
        for slicing in slicings
    }
    drawn = [slicing for slicing in parts if not _explain(slicing, parts)]
    said = filter(None, (_explain(slicing, parts) for slicing in parts))
    return "\n".join([figures(_write_slicing(slicing, parts[slicing]) for slicing in drawn), *said])


def _explain(slicing: str, parts: Mapping[str, Sequence[SliceMetrics]]) -> str:
    """Say why a slicing needs no figure; nothing where it does."""
    first, *others = parts[slicing]
    if not others:
        return paragraph(f"By {text(slicing)}: all images are {text(first.value)}.")
    if slicing != "class" and _numbers(parts[slicing]) == _numbers(parts.get("class", ())):
        return paragraph(f"By {text(slicing)}: the same as by class.")
    return ""


def _numbers(slices: Sequence[SliceMetrics]) -> list[tuple[int, float, float]]:
    return sorted((s.examples, s.accuracy, s.baseline or 0.0) for s in slices)


def _write_slicing(slicing: str, slices: Sequence[SliceMetrics]) -> str:
    """Keep the order of a few; of many, begin with the least accurate."""
    many = len(slices) > _DRAWN
    if many:
        slices = sorted(slices, key=lambda part: (math.isnan(part.accuracy), part.accuracy))
    shown = slices[:_MOST]
    order = "the least accurate first" if many else ""
    about = first_of(len(shown), len(slices), "slice", order=order)
    return (
        f"<div><h3>By {text(slicing)}</h3>\n{_draw(slicing, slices)}"
        f"{details(about, _tabulate(slicing, shown))}</div>"
    )


def _draw(slicing: str, slices: Sequence[SliceMetrics]) -> str:
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
    about = f"Accuracy by {slicing} with 95 % intervals{least}"
    drawing = draw_whiskers(
        rows, name=f"{about}; the numbers are in the table below", axis="accuracy"
    )
    return figure(drawing, f"{plain(about)}.")


def _tabulate(slicing: str, slices: Sequence[SliceMetrics]) -> str:
    compared = any(part.baseline is not None for part in slices)
    head = [text(slicing), "Images", "Accuracy"] + ["Baseline", "Change"] * compared
    rows = []
    for part in slices:
        accuracy = number(part.accuracy) + between(part.interval)
        row = [clip(part.value), f"{part.examples:,}", accuracy]
        if compared:
            other = math.nan if part.baseline is None else part.baseline
            change = signed(part.accuracy - other) + between(part.change, sign=True)
            row += [number(other), change]
        rows.append(row)
    return table(head, rows, name=f"Accuracy by {slicing}")
