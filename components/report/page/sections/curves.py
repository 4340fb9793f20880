"""ROC and precision over recall: over all classes, and of those that are told apart worst."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from components.evaluation.metrics.curves import ClassCurves, Roc
from components.report.facts import ReportFacts
from components.report.page.drawing import FIRST, SECOND, SOFT, WHOLE, Drawing, draw
from components.report.page.formatting import number


def describe_curves(facts: ReportFacts) -> dict[str, Any]:
    """Draw the ROC curve over all classes, and small ones of the worst classes, worst first."""
    roc = facts.metrics.roc
    return {
        "roc": roc,
        "drawing": _draw_roc(roc) if roc else None,
        "classes": [(curves.label, _draw_class(curves)) for curves in facts.comparison.curves],
    }


def _draw_roc(roc: Roc) -> Drawing:
    def paint(figure: Figure) -> None:
        axes = figure.add_subplot(xlabel="false positive rate", ylabel="recall")
        axes.set(xlim=WHOLE, ylim=WHOLE)
        _paint_roc(axes, roc)

    area = number(roc.area)
    return draw(
        paint,
        caption=f"ROC curve. The area under it is {area}; 0.5, the dashed line, is chance",
        name=f"ROC curve over all images; the area under it is {area}",
        height=3.4,
    )


def _paint_roc(axes: Axes, roc: Roc) -> None:
    axes.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=1)
    axes.plot(roc.false_positive_rate, roc.recall, color=FIRST)


def _draw_class(curves: ClassCurves) -> Drawing:
    def paint(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        for axes in (left, right):
            axes.set(xlim=WHOLE, ylim=WHOLE, xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        _paint_roc(left, curves.roc)
        left.set(xlabel="false positive rate", ylabel="recall")
        points = curves.precision_recall
        right.plot(points.recall, points.precision, color=SECOND)
        right.set(xlabel="recall", ylabel="precision")

    area, average = number(curves.roc.area), number(curves.precision_recall.average)
    numbers = f"area {area}, average precision {average}"
    name = f"ROC curve, and precision over recall, of {curves.label}: {numbers}"
    return draw(paint, caption=numbers, name=name, height=1.9)
