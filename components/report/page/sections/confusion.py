"""Which classes are taken for which: the matrix, and the pairs with most mistakes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from components.evaluation.metrics.predictions import Ints
from components.report.facts import MATRIX_CLASSES, ReportFacts
from components.report.page.image_links import ImageLinks

# Labels of at most so many characters fit above a column without being turned.
_SHORT_LABEL = 4
# Of more classes, zeros would hide the other numbers.
_ZEROS = 20


def describe_confusion(facts: ReportFacts) -> dict[str, Any]:
    """Count the pairs, and shade the cells of the matrix."""
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

    The shade is the root of the fraction of the row, so that rare mistakes show.
    """
    support = max(1, int(row.sum()))
    return [(n, 0.12 + 0.45 * math.sqrt(n / support)) for n in row[shown].tolist()]
