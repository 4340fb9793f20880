"""Whether the model is as often right as it is sure."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from components.evaluation.metrics.classification_metrics import Reliability
from components.report.facts import ReportFacts
from components.report.page.drawing import FIRST, SOFT, Drawing, draw
from components.report.page.formatting import number


def describe_calibration(facts: ReportFacts) -> dict[str, Any]:
    """Draw the reliability diagram."""
    reliability = facts.metrics.reliability
    if not reliability.examples.sum():
        return {"drawing": None}
    error = facts.metrics.scalars["ece"]
    return {"error": error, "drawing": _draw(reliability, error)}


def _draw(reliability: Reliability, error: float) -> Drawing:
    def paint(figure: Figure) -> None:
        curve, histogram = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        edges = reliability.edges
        fractions = reliability.examples / reliability.examples.sum()
        whole = reliability.examples > 0
        curve.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=1)
        curve.plot(reliability.confidence[whole], reliability.accuracy[whole], "o-", color=FIRST)
        curve.set(ylabel="accuracy", ylim=(-0.03, 1.03), xlim=(-0.02, 1.02))
        histogram.bar(
            edges[:-1], fractions, np.diff(edges) * 0.9, align="edge", color=FIRST, edgecolor="none"
        )
        histogram.set(xlabel="confidence", ylabel="fraction\nof images")
        histogram.locator_params(axis="y", nbins=3)

    return draw(
        paint,
        caption="Above accuracy over confidence, below the fraction of images of each confidence",
        name=f"Reliability diagram: accuracy over confidence; calibration error {number(error)}",
        height=4.4,
    )
