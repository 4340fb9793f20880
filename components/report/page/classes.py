"""Per-class metrics, the confusion matrix, and the images that both link to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from components.metrics.classification_metrics import ModelMetrics
from components.metrics.predictions import Ints
from components.report.facts import MATRIX_CLASSES, ReportFacts
from components.report.page.drawing import Drawing, IntervalRow, draw_intervals
from components.report.shown import PredictedImage

# Longer tables are collapsed.
_OPEN = 20
_MOST = 100
_DRAWN = 20
# Labels of up to this length fit above a column without rotation.
_SHORT_LABEL = 4
# With more classes, zeros would hide the other numbers.
_ZEROS = 20
# More classes are collapsed.
_MOST_OPEN = 60


@dataclass(frozen=True)
class ImageLinks:
    """Numbers of the classes, and the pairs of true and predicted class that have images."""

    numbers: Mapping[str | None, int]
    pairs: frozenset[tuple[str | None, str | None]]
    """None: any class."""

    @classmethod
    def of(cls, facts: ReportFacts) -> Self:
        """Number the classes of all images by name."""
        shown = {(image.label, image.predicted) for image in facts.images}
        labels = sorted({label for pair in shown for label in pair})
        any_class = ({(label, None), (None, predicted)} for label, predicted in shown)
        numbers: dict[str | None, int] = {label: place for place, label in enumerate(labels)}
        return cls(numbers, frozenset(shown).union(*any_class))

    def find(
        self, label: str | None = None, predicted: str | None = None
    ) -> tuple[int | None, int | None] | None:
        """Return the numbers for a link to the images of a pair; None if there are none."""
        if (label, predicted) not in self.pairs:
            return None
        return self.numbers.get(label), self.numbers.get(predicted)


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


def describe_images(facts: ReportFacts) -> dict[str, Any]:
    """Group the images by their true class, and list the choices of the filter."""
    of_class: dict[str, list[PredictedImage]] = {}
    for image in facts.images:
        of_class.setdefault(image.label, []).append(image)
    support = dict(zip(facts.metrics.labels, facts.metrics.support.tolist(), strict=True))
    return {
        "numbers": ImageLinks.of(facts).numbers,
        "most_open": _MOST_OPEN,
        "predicted": sorted({image.predicted for image in facts.images}),
        "groups": [
            {
                "label": label,
                "images": sorted(images, key=_informs),
                "total": max(len(images), support.get(label, 0)),
            }
            for label, images in sorted(of_class.items())
        ],
    }


def _informs(image: PredictedImage) -> tuple[bool, float]:
    """Rank confident mistakes first, then unsure ones, then unsure and sure right predictions."""
    return image.is_right, image.confidence if image.is_right else -image.confidence
