"""The numbers over all examples, with intervals, against the baseline and against guessing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.evaluation.metrics.classification_metrics import ModelMetrics
from components.evaluation.metrics.intervals import Interval
from components.evaluation.metrics.metric_table import METRICS
from components.report.facts import ReportFacts
from components.report.page.drawing import Drawing
from components.report.page.whiskers import Whisker, draw_whiskers


@dataclass(frozen=True)
class MetricRow:
    """A metric of this model, of the one in use, and of a guess; NaN where there is none."""

    metric: str
    value: float
    interval: Interval | None
    baseline: float
    change: Interval | None
    guess: float

    @property
    def title(self) -> str:
        """Its name in words."""
        return METRICS[self.metric].title

    @property
    def meaning(self) -> str:
        """What it says."""
        return METRICS[self.metric].meaning

    @property
    def judgement(self) -> tuple[str, str]:
        """What the change amounts to."""
        return judge(self.change, self.metric)


def describe_metrics(facts: ReportFacts) -> dict[str, Any]:
    """Put the rows of the table together, and draw values and changes."""
    guesses = _guess(facts)
    rows = [_make_row(facts, metric, guesses) for metric in _choose(facts)]
    # What can be drawn on one axis, where right is better: a loss has no upper end.
    drawn = [row for row in rows if not METRICS[row.metric].lower_is_better]
    drawings = (_draw_values(drawn), _draw_changes(drawn))
    return {"rows": rows, "drawings": [drawing for drawing in drawings if drawing]}


def judge(change: Interval | None, metric: str = "accuracy") -> tuple[str, str]:
    """Say in words and as a CSS class what a change with this interval amounts to."""
    if change is None or not math.isfinite(change.low + change.high):
        return "no interval", ""
    if change.low <= 0 <= change.high:
        return "no clear difference", ""
    better = (change.low > 0) != METRICS[metric].lower_is_better
    return ("▲ better", "good") if better else ("▼ worse", "bad")


def _choose(facts: ReportFacts) -> list[str]:
    """Leave out what is 1 whatever the model answers."""
    classes = len(facts.metrics.labels)
    trivial = [f"top_{most}_accuracy" for most in (3, 5) if most >= classes]
    return [metric for metric in METRICS if metric not in trivial]


def _make_row(facts: ReportFacts, metric: str, guesses: dict[str, float]) -> MetricRow:
    comparison = facts.comparison
    return MetricRow(
        metric,
        value=_look_up(facts.metrics, metric),
        interval=comparison.intervals.get(metric),
        baseline=_look_up(comparison.baseline, metric),
        change=comparison.changes.get(metric),
        guess=guesses.get(metric, math.nan),
    )


def _look_up(metrics: ModelMetrics | None, metric: str) -> float:
    return metrics.scalars.get(metric, math.nan) if metrics else math.nan


def _guess(facts: ReportFacts) -> dict[str, float]:
    """Measure the model that always answers with the majority class, where that is simple."""
    accuracy = facts.majority_accuracy
    found = np.count_nonzero(facts.metrics.support)
    recall = 1 / found if found else math.nan
    return {
        "accuracy": accuracy,
        "balanced_accuracy": recall,
        "macro_recall": recall,
        "macro_f1": 2 * accuracy / (1 + accuracy) * recall,
        "auc": 0.5,
    }


def _draw_values(rows: Sequence[MetricRow]) -> Drawing | None:
    shown = [
        Whisker(row.title, row.value, row.interval, row.baseline)
        for row in rows
        if math.isfinite(row.value)
    ]
    if not shown:
        return None
    known = any(row.interval for row in rows)
    caption = "Metrics with their 95 % intervals" if known else "Metrics"
    return draw_whiskers(shown, axis="value; 1 is best", caption=caption, table="above")


def _draw_changes(rows: Sequence[MetricRow]) -> Drawing | None:
    shown = [
        Whisker(row.title, row.value - row.baseline, row.change)
        for row in rows
        if math.isfinite(row.value - row.baseline)
    ]
    if not shown:
        return None
    return draw_whiskers(
        shown,
        axis="this model − baseline",
        zero=True,
        caption="Changes against the baseline: right of the dashed line this model is better",
        name="Changes against the baseline with 95 % intervals; the numbers are in the table above",
    )
