"""How well each class is told from the others."""

from __future__ import annotations

import math

import numpy as np

from components.evaluation.classification_metrics import ModelMetrics
from components.evaluation.predictions import Ints
from components.report.facts import ReportFacts
from components.report.page.elements import (
    clip,
    details,
    figure,
    figures,
    first_of,
    number,
    paragraph,
    table,
)
from components.report.page.whiskers import Whisker, draw_whiskers

# Longer tables take more than a screen and are opened on demand.
_OPEN = 20
_MOST = 100
_DRAWN = 20


def write_classes(facts: ReportFacts) -> str:
    """Write a figure of the worst classes and a table of more of them."""
    measures, baseline = facts.comparison.measures, facts.comparison.baseline
    worst = _sort_by_f1(measures)
    known = worst[np.isfinite(measures.f1[worst])]
    if not len(known):
        return paragraph("No class can be judged: F1 is defined for none.")
    shown = first_of(
        min(_MOST, len(worst)), len(worst), "class", many="classes", order="the lowest F1 first"
    )
    listing = _tabulate(measures, baseline, worst[:_MOST])
    return "\n".join(
        (
            paragraph(
                "Precision: of the images given this class, the share that have it. Recall: of the "
                "images of this class, the share found. F1: their harmonic mean. AUC: the chance "
                "that an image of the class gets more probability of it than one of another."
            ),
            _draw(measures, baseline, known[:_DRAWN], len(known)),
            details(shown, listing) if len(worst) > _OPEN else paragraph(f"{shown}.") + listing,
        )
    )


def _sort_by_f1(measures: ModelMetrics) -> Ints:
    """Order the classes from the lowest F1 to the highest, those without one last."""
    return np.argsort(np.where(np.isfinite(measures.f1), measures.f1, np.inf), kind="stable")


def _find_f1(measures: ModelMetrics | None) -> dict[str, float]:
    return dict(zip(measures.labels, measures.f1.tolist(), strict=True)) if measures else {}


def _draw(measures: ModelMetrics, baseline: ModelMetrics | None, shown: Ints, total: int) -> str:
    before = _find_f1(baseline)
    labels = [measures.labels[i] for i in shown]
    rows = [
        Whisker(label, float(measures.f1[i]), None, before.get(label, math.nan))
        for label, i in zip(labels, shown, strict=True)
    ]
    worst = f"{len(rows)} classes of {total:,} with the lowest F1" if len(rows) < total else ""
    about = worst or "F1 of each class, the lowest first"
    name = f"{about}; the numbers are in the table below"
    return figures([figure(draw_whiskers(rows, name=name, axis="F1"), f"{about}.")])


def _tabulate(measures: ModelMetrics, baseline: ModelMetrics | None, shown: Ints) -> str:
    columns = [measures.precision, measures.recall, measures.f1]
    columns += [measures.auc, measures.average_precision]
    head = ["Class", "Precision", "Recall", "F1", "AUC", "Average precision", "Images"]
    before = _find_f1(baseline)
    if baseline:
        head.insert(4, "F1 of baseline")
    rows = []
    for i in shown:
        label = measures.labels[i]
        row = [clip(label), *(number(column[i]) for column in columns), f"{measures.support[i]:,}"]
        if baseline:
            row.insert(4, number(before.get(label, math.nan)))
        rows.append(row)
    return table(head, rows, name="Precision, recall, F1 and areas of each class")
