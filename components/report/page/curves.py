"""ROC and precision over recall: over all classes, and of those that are told apart worst."""

from __future__ import annotations

from matplotlib.figure import Figure

from components.evaluation.classification_metrics import ClassCurves, Roc
from components.report.facts import ReportFacts
from components.report.page.drawing import FIRST, SECOND, SOFT, draw
from components.report.page.elements import (
    clip,
    figure,
    figures,
    first_of,
    number,
    paragraph,
    plain,
    text,
)


def write_curves(facts: ReportFacts) -> str:
    """Write the ROC curve over all classes, and small ones of some classes."""
    comparison = facts.comparison
    return "\n".join(
        (
            _write_overall(comparison.measures.roc),
            "<h3>Classes that are told apart worst</h3>",
            _write_classes(comparison.curves, len(comparison.measures.labels)),
        )
    )


def _write_overall(roc: Roc | None) -> str:
    if not roc:
        return paragraph("There is no ROC curve: the split has images of one class only.")
    about = (
        "Micro-average: each class against all others, every answer counted."
        if roc.positive is None
        else f"The positive class is {text(roc.positive)}."
    )
    name = f"ROC curve over all images; the area under it is {number(roc.area)}"

    def paint(drawn: Figure) -> None:
        _paint_roc(drawn, roc)

    caption = (
        f"ROC curve. The area under it is {number(roc.area)}; 0.5, the dashed line, is chance."
    )
    return paragraph(about) + figures([figure(draw(paint, name=name, height=3.4), caption)])


def _paint_roc(figure: Figure, roc: Roc) -> None:
    axes = figure.add_subplot(xlabel="false positive rate", ylabel="recall")
    axes.margins(0.02)
    axes.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=1)
    axes.plot(roc.false_positive_rate, roc.recall, color=FIRST, clip_on=False)


def _write_classes(curves: tuple[ClassCurves, ...], classes: int) -> str:
    if not curves:
        return paragraph("There are no curves: no class has both images of it and others.")
    shown = first_of(len(curves), classes, "class", many="classes", order="each against the rest")
    return paragraph(
        f"{shown}: on the left the ROC curve, on the right precision over recall."
    ) + figures(_draw_class(curve) for curve in curves)


def _draw_class(curves: ClassCurves) -> str:
    area, average = number(curves.roc.area), number(curves.precision_recall.average)
    numbers = f"area {area}, average precision {average}"

    def paint(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        for axes in (left, right):
            axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        left.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=1)
        left.plot(curves.roc.false_positive_rate, curves.roc.recall, color=FIRST)
        left.set(xlabel="false positive rate", ylabel="recall")
        points = curves.precision_recall
        right.plot(points.recall, points.precision, color=SECOND)
        right.set(xlabel="recall", ylabel="precision")

    name = f"ROC curve, and precision over recall, of {curves.label}: {numbers}"
    drawing = draw(paint, name=name, height=1.9)
    return figure(drawing, f"<strong>{clip(curves.label)}</strong>: {plain(numbers)}")
