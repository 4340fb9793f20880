"""Metrics overall and on slices, with intervals and against the baseline."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from components.contract.confidence import Interval
from components.metrics.classification_metrics import Comparison, SliceMetrics
from components.metrics.metric_table import METRICS, Metric
from components.report.facts import ReportFacts
from components.report.page.drawing import (
    REPORT_NAMES,
    Drawing,
    IntervalRow,
    ModelNames,
    draw_intervals,
)

_DRAWN_SLICES, _MOST_SLICES = 20, 100


@dataclass(frozen=True)
class MetricRow:
    """A metric of this model and of the current model; NaN if undefined."""

    metric: Metric
    value: float
    interval: Interval | None
    baseline: float
    difference: float
    """On the images whose labels both models know."""
    change: Interval | None

    @property
    def judgment(self) -> tuple[str, str]:
        """What the change amounts to."""
        return judge(self.change, self.metric.name)


def describe_metrics(facts: ReportFacts) -> dict[str, Any]:
    """Compile the rows of the table, and draw values and changes."""
    unknown = int(facts.metrics.support.sum()) - facts.comparison.compared
    return {**describe_comparison(facts.comparison), "unknown": unknown}


def describe_comparison(
    comparison: Comparison, *, names: ModelNames = REPORT_NAMES
) -> dict[str, Any]:
    """Compile the rows of the table of metrics, and draw values and changes."""
    metrics, baseline = comparison.metrics, comparison.baseline
    classes = max(len(model.labels) for model in (metrics, baseline) if model)
    # Top-k accuracy of at most k classes is always 1.
    shown = [metric for metric in METRICS.values() if metric.top < classes]
    rows = [
        MetricRow(
            metric,
            value=metrics.scalars[metric.name],
            interval=comparison.intervals.get(metric.name),
            baseline=baseline.scalars[metric.name] if baseline else math.nan,
            difference=comparison.differences.get(metric.name, math.nan),
            change=comparison.changes.get(metric.name),
        )
        for metric in shown
    ]
    # A common axis from 0 to 1, where higher is better.
    drawn = [row for row in rows if not row.metric.lower_is_better]
    drawings = (_draw_values(drawn, names), _draw_changes(drawn, names))
    return {
        "rows": rows,
        "names": names,
        "baseline": baseline,
        "drawings": [drawing for drawing in drawings if drawing],
    }


def judge(change: Interval | None, metric: str = "accuracy") -> tuple[str, str]:
    """Return what a change amounts to, in words and as a CSS class."""
    if change is None or not math.isfinite(change.low + change.high):
        return "no interval", ""
    if change.low <= 0 <= change.high:
        return "no clear difference", ""
    better = (change.low > 0) != METRICS[metric].lower_is_better
    return ("▲ better", "good") if better else ("▼ worse", "bad")


def _draw_values(rows: Sequence[MetricRow], names: ModelNames) -> Drawing | None:
    shown = [
        IntervalRow(row.metric.title, row.value, row.interval, row.baseline)
        for row in rows
        if math.isfinite(row.value)
    ]
    if not shown:
        return None
    known = any(row.interval for row in rows)
    caption = "Metrics with 95% confidence intervals" if known else "Metrics"
    axis = "value; 1 is best"
    return draw_intervals(shown, axis=axis, names=names, caption=caption, table="above")


def _draw_changes(rows: Sequence[MetricRow], names: ModelNames) -> Drawing | None:
    shown = [
        IntervalRow(row.metric.title, row.difference, row.change)
        for row in rows
        if math.isfinite(row.difference)
    ]
    if not shown:
        return None
    return draw_intervals(
        shown,
        axis=f"{names.this} − {names.other.removeprefix('the ')}",
        zero=True,
        caption=f"Differences to {names.other}: {names.this} is better to the right of the "
        "dashed line",
        name=f"Differences to {names.other} with 95% confidence intervals; the numbers are in "
        "the table above",
    )


def describe_slices(
    comparison: Comparison, *, names: ModelNames = REPORT_NAMES, by_change: bool = False
) -> dict[str, Any]:
    """Draw each informative slicing, and list its slices.

    Of many slices the least accurate come first, or, sorted `by_change`, those that lost most.
    """
    slicings: dict[str, list[SliceMetrics]] = {}
    for part in comparison.slices:
        slicings.setdefault(part.slicing, []).append(part)
    numbers = {
        name: sorted((part.examples, part.accuracy, part.baseline or 0.0) for part in slices)
        for name, slices in slicings.items()
    }
    # Each slice is a class by another name, such as its folder.
    repeated = [
        name
        for name, of_slices in numbers.items()
        if name != "class" and len(of_slices) > 1 and of_slices == numbers.get("class")
    ]
    return {
        "single": {name: slices[0].value for name, slices in slicings.items() if len(slices) == 1},
        "repeated": repeated,
        "names": names,
        "drawn": [
            _describe_slicing(name, slices, names, by_change=by_change)
            for name, slices in slicings.items()
            if len(slices) > 1 and name not in repeated
        ],
    }


def _describe_slicing(
    slicing: str, slices: Sequence[SliceMetrics], names: ModelNames, *, by_change: bool
) -> dict[str, Any]:
    """Keep the order of a few slices; of many, show the worst first."""
    many = len(slices) > _DRAWN_SLICES
    worst, order = "least accurate", "the least accurate first"
    if by_change:
        worst, order = "that lost most", "those that lost most first"
        slices = sorted(slices, key=lambda part: part.accuracy - (part.baseline or 0.0))
    elif many:
        slices = sorted(slices, key=lambda part: part.accuracy)
    rows = [
        IntervalRow(
            part.value,
            part.accuracy,
            part.interval,
            math.nan if part.baseline is None else part.baseline,
        )
        for part in slices[:_DRAWN_SLICES]
    ]
    least = f", the {_DRAWN_SLICES} {worst} of {len(slices):,}" if many else ""
    caption = f"Accuracy by {slicing} with 95% confidence intervals{least}"
    return {
        "name": slicing,
        "drawing": draw_intervals(rows, axis="accuracy", names=names, caption=caption),
        "listed": slices[:_MOST_SLICES],
        "total": len(slices),
        "order": order if many else "",
        "compared": any(part.baseline is not None for part in slices),
    }
