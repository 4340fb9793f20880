"""Whether the model is as often right as it is sure."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from components.evaluation.classification_metrics import Reliability
from components.report.facts import ReportFacts
from components.report.page.drawing import FIRST, SOFT, draw
from components.report.page.elements import details, figure, figures, number, paragraph, table


def write_calibration(facts: ReportFacts) -> str:
    """Write the reliability diagram and its numbers."""
    measures = facts.comparison.measures
    reliability = measures.reliability
    if not reliability.examples.sum():
        return paragraph("There is no image to judge the confidence by.")
    error = measures.scalars.get("ece", math.nan)
    about = (
        "Confidence is the probability of the answer. Of the images with a confidence of 80 %, a "
        "calibrated model is right about 80 %: its dots lie on the dashed line, those of one that "
        f"is too sure below it. The expected calibration error is {number(error)}."
    )
    name = f"Reliability diagram: accuracy over confidence; calibration error {number(error)}"

    def paint(drawn: Figure) -> None:
        _paint(drawn, reliability)

    caption = "Above accuracy over confidence, below the share of the images with that confidence."
    drawing = figure(draw(paint, name=name, height=4.4), caption)
    return paragraph(about) + figures([drawing, details("The numbers", _tabulate(reliability))])


def _paint(figure: Figure, reliability: Reliability) -> None:
    curve, histogram = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    edges, shares = reliability.edges, reliability.examples / reliability.examples.sum()
    curve.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=1)
    whole = reliability.examples > 0
    curve.plot(reliability.confidence[whole], reliability.accuracy[whole], "o-", color=FIRST)
    curve.set(ylabel="accuracy", ylim=(-0.03, 1.03), xlim=(-0.02, 1.02))
    histogram.bar(
        edges[:-1], shares, np.diff(edges) * 0.9, align="edge", color=FIRST, edgecolor="none"
    )
    histogram.set(xlabel="confidence", ylabel="share of\nimages")
    histogram.locator_params(axis="y", nbins=3)


def _tabulate(reliability: Reliability) -> str:
    edges = reliability.edges
    rows = (
        [
            f"{low:.2f} to {high:.2f}",
            f"{examples:,}",
            number(confidence),
            number(accuracy),
        ]
        for low, high, examples, confidence, accuracy in zip(
            edges[:-1],
            edges[1:],
            reliability.examples,
            reliability.confidence,
            reliability.accuracy,
            strict=True,
        )
    )
    head = ("Confidence", "Images", "Mean confidence", "Accuracy")
    return table(head, rows, name="Accuracy by confidence")
