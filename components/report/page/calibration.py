"""Calibration: accuracy against confidence."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from components.contract.confidence import Interval, proportion_interval
from components.metrics.calibration import ConfidenceBin
from components.report.facts import ReportFacts
from components.report.page.drawing import FIRST, SOFT, WHOLE, Drawing, draw
from components.report.page.formatting import number


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
