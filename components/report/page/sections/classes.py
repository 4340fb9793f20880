"""How well each class is told from the others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from components.evaluation.metrics.classification_metrics import ModelMetrics
from components.evaluation.metrics.predictions import Ints
from components.report.facts import ReportFacts
from components.report.page.drawing import Drawing
from components.report.page.image_links import ImageLinks
from components.report.page.whiskers import Whisker, draw_whiskers

# Longer tables take more than a screen and are opened on demand.
_OPEN = 20
_MOST = 100
_DRAWN = 20


def describe_classes(facts: ReportFacts) -> dict[str, Any]:
    """Draw the worst classes, and list more of them."""
    metrics, baseline = facts.metrics, facts.comparison.baseline
    worst = _sort_by_f1(metrics)
    known = worst[np.isfinite(metrics.f1[worst])]
    known_before = dict(zip(baseline.labels, baseline.f1.tolist(), strict=True)) if baseline else {}
    before = {label: known_before.get(label, math.nan) for label in metrics.labels}
    return {
        "drawing": _draw(metrics, before, known) if len(known) else None,
        "listed": worst[:_MOST].tolist(),
        "total": len(worst),
        "is_open": len(worst) <= _OPEN,
        "f1_of_baseline": before,
        "links": ImageLinks.of(facts),
    }


def _sort_by_f1(metrics: ModelMetrics) -> Ints:
    """Order the classes from the lowest F1 to the highest, those without one last."""
    return np.argsort(np.where(np.isfinite(metrics.f1), metrics.f1, np.inf), kind="stable")


def _draw(metrics: ModelMetrics, before: dict[str, float], known: Ints) -> Drawing:
    rows = [
        Whisker(label, float(metrics.f1[row]), metrics.f1_interval(row), before[label])
        for row in known[:_DRAWN].tolist()
        for label in [metrics.labels[row]]
    ]
    few = len(rows) == len(known)
    worst = f"F1 with 95 % intervals of the {len(rows)} classes of {len(known):,} with the lowest"
    caption = "F1 of each class with its 95 % interval, the lowest first" if few else worst
    return draw_whiskers(rows, axis="F1", caption=caption)
