"""The numbers over all examples, with intervals, against the baseline and against guessing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from components.evaluation.classification_metrics import (
    LOWER_IS_BETTER,
    METRICS,
    NAMES,
    Comparison,
    Interval,
    ModelMetrics,
)
from components.report.facts import ReportFacts
from components.report.page.elements import (
    between,
    details,
    figure,
    figures,
    number,
    paragraph,
    signed,
    table,
    terms,
)
from components.report.page.whiskers import Whisker, draw_whiskers

_TITLES = {metric: name[0].upper() + name[1:] for metric, name in NAMES.items()}
_MEANINGS = {
    "accuracy": "Share of the images whose class is found.",
    "balanced_accuracy": "Mean recall: each class counts as much as any other.",
    "top_3_accuracy": "Share of the images whose class is among the three most probable.",
    "top_5_accuracy": "Share of the images whose class is among the five most probable.",
    "macro_precision": "Mean over the classes of the share of right ones among its answers.",
    "macro_recall": "Mean over the classes of the share of their images that is found.",
    "macro_f1": "Mean over the classes of F1, the harmonic mean of precision and recall.",
    "auc": "Mean area under the classes' ROC curves, each against the rest; 0.5 is chance.",
    "ece": "Expected calibration error: how far confidence is from accuracy. Lower is better.",
    "loss": "Cross-entropy, in nats. 0 is best.",
}
_GUESS = "A guess is to answer with the most frequent class always."


def write_metrics(facts: ReportFacts) -> str:
    """Write the table, the figures and what the names mean."""
    comparison = facts.comparison
    # What can be drawn on one axis, where right is better: loss is no share.
    shares = [metric for metric in _choose(facts) if metric not in LOWER_IS_BETTER]
    return "\n".join(
        (
            _introduce(facts),
            _tabulate(facts),
            details(
                "What the metrics mean",
                terms((_TITLES[name], _MEANINGS[name]) for name in _choose(facts)),
            ),
            figures([_draw_values(comparison, shares), _draw_changes(comparison, shares)]),
        )
    )


def judge(change: Interval | None, metric: str = "accuracy") -> tuple[str, str]:
    """Say in words and as a CSS class what a change with this interval amounts to."""
    if change is None or not math.isfinite(change.low + change.high):
        return "no interval", ""
    if change.low <= 0 <= change.high:
        return "no clear difference", ""
    better = (change.low > 0) != (metric in LOWER_IS_BETTER)
    return ("▲ better", "good") if better else ("▼ worse", "bad")


def _introduce(facts: ReportFacts) -> str:
    intervals = "Below each number is the interval that holds its true value with 95 % confidence. "
    if facts.comparison.baseline is None:
        return paragraph(f"{intervals}There is no model in use to compare with. {_GUESS}")
    return paragraph(
        intervals + "The change is against the model in use, on the same images; where its "
        "interval holds 0, the difference may be chance. " + _GUESS
    )


def _choose(facts: ReportFacts) -> list[str]:
    """Leave out what is 1 whatever the model answers."""
    classes = len(facts.comparison.measures.labels)
    trivial = [f"top_{most}_accuracy" for most in (3, 5) if most >= classes]
    return [metric for metric in METRICS if metric not in trivial]


def _tabulate(facts: ReportFacts) -> str:
    comparison = facts.comparison
    head = ["", "This model"]
    if comparison.baseline:
        head += ["Change", "Baseline"]
    head.append("Guess")
    return table(
        head,
        [_make_row(facts, metric) for metric in _choose(facts)],
        name="Metrics over all images",
    )


def _make_row(facts: ReportFacts, metric: str) -> list[str]:
    comparison = facts.comparison
    value = _look_up(comparison.measures, metric)
    interval = between(comparison.intervals.get(metric))
    row = [_TITLES[metric], f"<strong>{number(value)}</strong>{interval}"]
    if comparison.baseline:
        other = _look_up(comparison.baseline, metric)
        change = comparison.changes.get(metric)
        words, kind = judge(change, metric)
        verdict = f'<small class="{kind}">{words}</small>'
        row += [signed(value - other) + between(change, sign=True) + verdict, number(other)]
    return [*row, number(_guess(facts).get(metric, math.nan))]


def _guess(facts: ReportFacts) -> dict[str, float]:
    """Measure the model that always answers with the most frequent class, where that is simple."""
    share = facts.floor
    found = np.count_nonzero(facts.comparison.measures.support)
    recall = 1 / found if found else math.nan
    return {
        "accuracy": share,
        "balanced_accuracy": recall,
        "macro_recall": recall,
        "macro_f1": 2 * share / (1 + share) * recall,
        "auc": 0.5,
    }


def _draw_values(comparison: Comparison, shares: Sequence[str]) -> str:
    baseline, intervals = comparison.baseline, comparison.intervals
    rows = [
        Whisker(_TITLES[metric], value, intervals.get(metric), _look_up(baseline, metric))
        for metric in shares
        if math.isfinite(value := _look_up(comparison.measures, metric))
    ]
    if not rows:
        return ""
    about = "Metrics with their 95 % intervals" if intervals else "Metrics"
    name = f"{about}; the numbers are in the table above"
    return figure(draw_whiskers(rows, name=name, axis="value; 1 is best"), f"{about}.")


def _draw_changes(comparison: Comparison, shares: Sequence[str]) -> str:
    rows = []
    for metric in shares:
        value = _look_up(comparison.measures, metric) - _look_up(comparison.baseline, metric)
        if math.isfinite(value):
            rows.append(Whisker(_TITLES[metric], value, comparison.changes.get(metric)))
    if not rows:
        return ""
    name = "Changes against the baseline with 95 % intervals; the numbers are in the table above"
    return figure(
        draw_whiskers(rows, name=name, axis="this model − baseline", zero=True),
        "Changes against the baseline: right of the dashed line this model is better.",
    )


def _look_up(measures: ModelMetrics | None, metric: str) -> float:
    return measures.scalars.get(metric, math.nan) if measures else math.nan
