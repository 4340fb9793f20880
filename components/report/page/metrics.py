"""Metrics overall and on slices, with intervals and against the baseline, and calibration."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from components.contract.confidence import Interval, proportion_interval
from components.metrics.classification_metrics import Comparison, SliceMetrics
from components.metrics.metric_table import METRICS
from components.metrics.score_metrics import ConfidenceBin
from components.report.facts import ReportFacts
from components.report.page.drawing import (
    FIRST,
    REPORT_NAMES,
    SOFT,
    WHOLE,
    Drawing,
    IntervalRow,
    ModelNames,
    draw,
    draw_intervals,
)
from components.report.page.formatting import number

_DRAWN_SLICES, _MOST_SLICES = 20, 100


def describe_metrics(facts: ReportFacts) -> dict[str, Any]:
    """Compile the rows of the table."""
    unknown = int(facts.metrics.support.sum()) - facts.comparison.compared
    return {**describe_comparison(facts.comparison), "unknown": unknown}


def describe_comparison(
    comparison: Comparison, *, names: ModelNames = REPORT_NAMES
) -> dict[str, Any]:
    """Compile the rows of the table of metrics."""
    metrics, baseline = comparison.metrics, comparison.baseline
    classes = max(len(model.labels) for model in (metrics, baseline) if model)
    # Top-k accuracy of at most k classes is always 1.
    shown = [metric for metric in METRICS.values() if metric.top < classes]
    rows = [
        {
            "metric": metric,
            "value": metrics.scalars[metric.name],
            "interval": comparison.intervals.get(metric.name),
            "baseline": baseline.scalars[metric.name] if baseline else math.nan,
            "difference": comparison.differences.get(metric.name, math.nan),
            "change": comparison.changes.get(metric.name),
            "judgment": judge(comparison.changes.get(metric.name), metric.name),
        }
        for metric in shown
    ]
    return {"rows": rows, "names": names, "baseline": baseline}


def judge(change: Interval | None, metric: str = "accuracy") -> tuple[str, str]:
    """Return what a change amounts to, in words and as a CSS class."""
    if change is None or not math.isfinite(change.low + change.high):
        return "no interval", ""
    if change.low <= 0 <= change.high:
        return "no clear difference", ""
    better = (change.low > 0) != METRICS[metric].lower_is_better
    return ("▲ better", "good") if better else ("▼ worse", "bad")


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


def describe_calibration(facts: ReportFacts) -> dict[str, Any]:
    """Draw the reliability diagram, and list its bins with their intervals."""
    metrics = facts.metrics
    bins = [bin_ for bin_ in metrics.reliability if bin_.examples]
    if not bins:
        return {"drawing": None}
    intervals = [
        proportion_interval(round(bin_.accuracy * bin_.examples), bin_.examples) for bin_ in bins
    ]
    error = metrics.scalars["ece"]
    return {
        "error": error,
        "drawing": _draw_reliability(bins, intervals, error),
        "rows": list(zip(bins, intervals, strict=True)),
    }


def _draw_reliability(
    bins: Sequence[ConfidenceBin], intervals: Sequence[Interval], error: float
) -> Drawing:
    low, high, examples, confidence, accuracy = np.array(bins).T

    def paint(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        above.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=1)
        ends = ([interval.low for interval in intervals], [interval.high for interval in intervals])
        above.vlines(confidence, *ends, color=FIRST)
        above.plot(confidence, accuracy, "o", color=FIRST)
        above.set(ylabel="accuracy", xlim=WHOLE, ylim=WHOLE)
        fractions, width = examples / examples.sum(), 0.9 * (high - low)
        below.bar(low, fractions, width, align="edge", color=FIRST, edgecolor="none")
        below.set(xlabel="confidence", ylabel="fraction\nof images")
        below.locator_params(axis="y", nbins=3)

    return draw(
        paint,
        caption="Top: accuracy against confidence with 95% confidence intervals. Bottom: histogram "
        "of confidence",
        name=f"Reliability diagram: accuracy against confidence; calibration error {number(error)}",
        height=4.4,
    )
