"""Per-class metrics, the confusion matrix and the class balance."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from components.metrics.classification_metrics import ModelMetrics
from components.metrics.predictions import Ints
from components.report.facts import MATRIX_CLASSES, ReportFacts
from components.report.page.drawing import Drawing, IntervalRow, draw_intervals
from components.report.page.images import ImageLinks

# Longer tables are collapsed.
_OPEN = 20
_MOST = 100
_DRAWN = 20
# Labels of up to this length fit above a column without rotation.
_SHORT_LABEL = 4
# With more classes, zeros would hide the other numbers.
_ZEROS = 20


def describe_classes(facts: ReportFacts) -> dict[str, Any]:
    """Draw the classes with the lowest F1, and list more of them."""
    metrics, baseline = facts.metrics, facts.comparison.baseline
    # Classes without F1 come last.
    worst = np.argsort(np.where(np.isfinite(metrics.f1), metrics.f1, np.inf), kind="stable")
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


def _draw(metrics: ModelMetrics, before: dict[str, float], known: Ints) -> Drawing:
    rows = [
        IntervalRow(label, float(metrics.f1[row]), metrics.f1_interval(row), before[label])
        for row in known[:_DRAWN].tolist()
        for label in [metrics.labels[row]]
    ]
    which = "each class" if len(rows) == len(known) else f"{len(rows)} of {len(known):,} classes"
    caption = f"F1 of {which} with 95% confidence intervals, the lowest first"
    return draw_intervals(rows, axis="F1", caption=caption)


def describe_confusion(facts: ReportFacts) -> dict[str, Any]:
    """Count the confused pairs, and shade the cells of the matrix."""
    metrics = facts.metrics
    shown = metrics.most_mistaken(MATRIX_CLASSES)
    labels = [metrics.labels[column] for column in shown]
    right = np.count_nonzero(np.diag(metrics.confusion))
    return {
        "pairs": int(np.count_nonzero(metrics.confusion) - right),
        "links": ImageLinks.of(facts),
        "labels": labels,
        "rows": [(metrics.labels[row], _shade(metrics.confusion[row], shown)) for row in shown],
        "zeros": len(shown) <= _ZEROS,
        "turned": max(map(len, labels)) > _SHORT_LABEL,
    }


def _shade(row: Ints, shown: Ints) -> list[tuple[int, float]]:
    """Return the examples of each cell, and a shade from 0 to 1.

    The shade is the square root of the fraction of the row, so that rare mistakes are visible.
    """
    support = max(1, int(row.sum()))
    return [(n, 0.12 + 0.45 * math.sqrt(n / support)) for n in row[shown].tolist()]


def describe_balance(facts: ReportFacts) -> dict[str, Any]:
    """Describe the splits, and list the rarest classes."""
    counts = facts.balance.values()
    labels = sorted(facts.classes, key=lambda label: sum(split.get(label, 0) for split in counts))
    return {
        "total": len(labels),
        "splits": [(split, *_count(facts.balance[split])) for split in facts.balance],
        "rarest": labels[:_MOST],
        "is_open": len(labels) <= _OPEN,
    }


def _count(counts: Mapping[str, int]) -> tuple[int, str, int]:
    """Return the number of images, the sizes of the classes, and how many have images."""
    sizes = [size for size in counts.values() if size]
    least, most = min(sizes, default=0), max(sizes, default=0)
    return sum(sizes), f"{least:,} to {most:,}" if least < most else f"{most:,}", len(sizes)
