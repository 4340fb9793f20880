"""Calibration, unknown images and the ROC curve."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from components.contract.confidence import Interval, proportion_interval
from components.metrics.calibration import Bins
from components.metrics.curves import Roc
from components.metrics.predictions import Scores
from components.report.facts import ReportFacts
from components.report.page.drawing import FIRST, SECOND, SOFT, WHOLE, Drawing, draw
from components.report.page.formatting import number

# Area of the dot of a bin with all images, in square points, and of the smallest dot.
_LARGEST, _SMALLEST = 220, 12


def describe_calibration(facts: ReportFacts) -> dict[str, Any]:
    """Draw the reliability diagram, and list its bins with their intervals."""
    metrics, bins = facts.metrics, facts.metrics.calibration
    if not bins:
        return {"drawing": None}
    intervals = [
        proportion_interval(round(bin_.accuracy * bin_.examples), bin_.examples) for bin_ in bins
    ]
    error = metrics.scalars["ece"]
    return {
        "error": error,
        "loss": metrics.scalars["loss"],
        "scaling": facts.scaling,
        "drawing": _draw_reliability(bins, intervals, metrics.reliability, error),
        "rows": list(zip(bins, intervals, strict=True)),
    }


def _draw_reliability(
    bins: Bins, intervals: list[Interval], histogram: Bins, error: float
) -> Drawing:
    def paint(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        _paint_dots(above, bins, intervals)
        above.set(ylabel="accuracy", xlim=WHOLE, ylim=WHOLE)
        low, high, examples, _, _ = np.array(histogram).T
        fractions = examples / max(1, examples.sum())
        width = 0.9 * (high - low)
        below.bar(low, fractions, width, align="edge", color=FIRST, edgecolor="none")
        below.set(xlabel="confidence", ylabel="fraction\nof images")
        below.locator_params(axis="y", nbins=3)

    return draw(
        paint,
        caption="Top: accuracy against confidence with 95% confidence intervals; the size of a dot "
        "is the fraction of the images. Bottom: histogram of confidence",
        name=f"Reliability diagram: accuracy against confidence; calibration error {number(error)}",
        height=4.4,
    )


def _paint_dots(axes: Axes, bins: Bins, intervals: list[Interval]) -> None:
    axes.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=1)
    confidence = [bin_.confidence for bin_ in bins]
    axes.vlines(
        confidence,
        [of.low for of in intervals],
        [interval.high for interval in intervals],
        color=FIRST,
    )
    total = sum(bin_.examples for bin_ in bins)
    sizes = [max(_SMALLEST, _LARGEST * bin_.examples / total) for bin_ in bins]
    axes.scatter(confidence, [bin_.accuracy for bin_ in bins], sizes, color=FIRST, zorder=3)


def describe_unknowns(facts: ReportFacts) -> dict[str, Any]:
    """Draw the scores of the evaluated images with the threshold."""
    unknowns, scores = facts.unknowns, facts.known_scores
    threshold = unknowns.threshold if unknowns else None
    drawn = None if threshold is None or scores is None else _draw_scores(scores, threshold)
    return {"drawing": drawn}


def _draw_scores(scores: Scores, threshold: float) -> Drawing:
    def paint(figure: Figure) -> None:
        axes = figure.add_subplot(xlabel="score", ylabel="images")
        # Outliers would leave no room for the others.
        low = min(float(np.quantile(scores, 0.005)), threshold)
        axes.hist(scores.clip(low), bins=40, color=FIRST)
        axes.axvline(threshold, color=SECOND, linestyle="--")
        axes.grid(visible=False, axis="x")

    return draw(
        paint,
        caption="Scores of the evaluated images; those to the left of the dashed line, the "
        "threshold, are called unknown",
        name=f"Histogram of the scores; the threshold is {number(threshold)}",
        height=2.2,
    )


def describe_curves(facts: ReportFacts) -> dict[str, Any]:
    """Draw the ROC curve over all classes."""
    roc = facts.metrics.roc
    return {"roc": roc, "drawing": _draw_roc(roc) if roc else None}


def _draw_roc(roc: Roc) -> Drawing:
    def paint(figure: Figure) -> None:
        axes = figure.add_subplot(xlabel="false positive rate", ylabel="recall")
        axes.set(xlim=WHOLE, ylim=WHOLE)
        axes.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=1)
        axes.plot(roc.false_positive_rate, roc.recall, color=FIRST)

    area = number(roc.area)
    return draw(
        paint,
        caption=f"ROC curve, AUC {area}; the dashed line is chance, AUC 0.5",
        name=f"ROC curve over all images, AUC {area}",
        height=3.4,
    )
