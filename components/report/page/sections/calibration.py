"""Whether the model is as often right as it is sure."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from components.evaluation.metrics.calibration import Reliability
from components.evaluation.metrics.intervals import Interval, proportion_interval
from components.report.facts import ConfidenceBin, ReportFacts, list_bins
from components.report.page.drawing import FIRST, SOFT, WHOLE, Drawing, draw
from components.report.page.formatting import number

# Area of the dot of a bin that has all images, in square points, and of the smallest one.
_LARGEST, _SMALLEST = 220, 12


def describe_calibration(facts: ReportFacts) -> dict[str, Any]:
    """Draw the reliability diagram, and list its bins with their intervals."""
    metrics, bins = facts.metrics, list_bins(facts.metrics.calibration)
    if not bins:
        return {"drawing": None}
    intervals = [_interval(of) for of in bins]
    error = metrics.scalars["ece"]
    return {
        "error": error,
        "loss": metrics.scalars["loss"],
        "scaling": facts.scaling,
        "drawing": _draw(bins, intervals, metrics.reliability, error),
        "rows": list(zip(bins, intervals, strict=True)),
    }


def _interval(of: ConfidenceBin) -> Interval:
    return proportion_interval(round(of.accuracy * of.examples), of.examples)


def _draw(
    bins: list[ConfidenceBin], intervals: list[Interval], histogram: Reliability, error: float
) -> Drawing:
    def paint(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        _paint_dots(above, bins, intervals)
        above.set(ylabel="accuracy", xlim=WHOLE, ylim=WHOLE)
        edges = histogram.edges
        fractions = histogram.examples / max(1, histogram.examples.sum())
        below.bar(
            edges[:-1], fractions, np.diff(edges) * 0.9, align="edge", color=FIRST, edgecolor="none"
        )
        below.set(xlabel="confidence", ylabel="fraction\nof images")
        below.locator_params(axis="y", nbins=3)

    return draw(
        paint,
        caption="Above accuracy over confidence with 95 % intervals, each dot as large as the "
        "fraction of the images in it; below the fraction of images of each confidence",
        name=f"Reliability diagram: accuracy over confidence; calibration error {number(error)}",
        height=4.4,
    )


def _paint_dots(axes: Axes, bins: list[ConfidenceBin], intervals: list[Interval]) -> None:
    axes.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=1)
    confidence = [of.confidence for of in bins]
    axes.vlines(
        confidence, [of.low for of in intervals], [of.high for of in intervals], color=FIRST
    )
    total = sum(of.examples for of in bins)
    sizes = [max(_SMALLEST, _LARGEST * of.examples / total) for of in bins]
    axes.scatter(confidence, [of.accuracy for of in bins], sizes, color=FIRST, zorder=3)
