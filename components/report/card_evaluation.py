"""The part of the model card that says how good the model is, and where it is wrong."""

from __future__ import annotations

import math

import numpy as np

from components.evaluation.classification_metrics import METRICS, NAMES, Interval
from components.report.facts import ReportFacts
from components.report.markdown import bullets, escape, table

_WORST_CLASSES = 10
_WORST_SLICES = 10
_MOST_CONFUSED = 10


def describe_evaluation(facts: ReportFacts, *, most_classes: int) -> dict[str, str]:
    """Return title → Markdown of each section.

    Args:
        facts: of the run.
        most_classes: so many are listed one by one.
    """
    return {
        "Evaluation": _overall(facts),
        "Verdict": _verdict(facts),
        "Classes": _classes(facts, most_classes),
        "Slices": _slices(facts),
        "Known mistakes": _confused(facts),
        "Calibration": _calibration(facts),
    }


def format_duration(seconds: float) -> str:
    """Say how long something took, in one unit."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "–"


def _interval(interval: Interval | None, *, sign: str = "") -> str:
    if interval is None:
        return "–"
    return f"{interval.low:{sign}.4f} to {interval.high:{sign}.4f}"


def _overall(facts: ReportFacts) -> str:
    comparison = facts.comparison
    measures, baseline = comparison.measures, comparison.baseline
    header = ["metric", "value", "95 % interval"]
    if baseline:
        header += ["model in use", "change, 95 %"]
    rows = []
    for name in (name for name in METRICS if name in measures.scalars):
        value = measures.scalars[name]
        row = [NAMES[name], _number(value), _interval(comparison.intervals.get(name))]
        if baseline:
            change = _interval(comparison.changes.get(name), sign="+")
            row += [_number(baseline.scalars.get(name, math.nan)), change]
        rows.append(row)
    examples = int(measures.support.sum())
    return (
        f"On the {examples:,} images of the split {escape(facts.split)}.\n\n{table(header, rows)}"
    )


def _verdict(facts: ReportFacts) -> str:
    decided = "Blessed: it may replace the model in use." if facts.blessed else "Not blessed."
    lines = [
        *map(escape, facts.reasons),
        f"share of the most frequent class, which needs no model: {facts.floor:.4f}",
    ]
    if facts.baseline_version:
        lines.append(f"model in use: version {escape(facts.baseline_version)}")
    return f"{decided}\n\n{bullets(lines)}"


def _classes(facts: ReportFacts, most: int) -> str:
    measures = facts.comparison.measures
    labels = measures.labels
    # Classes without an example, whose recall is not a number, come last.
    worst = np.argsort(measures.recall, kind="stable")
    shown = worst[: len(labels) if len(labels) <= most else _WORST_CLASSES]
    columns = (measures.precision, measures.recall, measures.f1, measures.auc)
    rows = [
        (escape(labels[i]), f"{measures.support[i]:,}", *(_number(float(c[i])) for c in columns))
        for i in shown
    ]
    left_out = f" of {len(labels):,}" if len(shown) < len(labels) else ""
    found = table(("class", "images", "precision", "recall", "F1", "AUC"), rows)
    return f"The {len(shown)}{left_out} classes, lowest recall first.\n\n{found}"


def _slices(facts: ReportFacts) -> str:
    everything = facts.comparison.measures.support.sum()
    slices = [
        part
        for part in facts.comparison.slices
        if part.slicing != "class" and part.examples < everything
    ]
    if not slices:
        return "None were measured."
    worst = sorted(slices, key=lambda part: part.accuracy)[:_WORST_SLICES]
    rows = [
        (
            f"{escape(part.slicing)}: {escape(part.value)}",
            f"{part.examples:,}",
            _number(part.accuracy),
            _interval(part.interval),
            _number(math.nan if part.baseline is None else part.baseline),
        )
        for part in worst
    ]
    header = ("slice", "images", "accuracy", "95 % interval", "model in use")
    return f"The lowest accuracies of {len(slices):,} slices.\n\n{table(header, rows)}"


def _confused(facts: ReportFacts) -> str:
    pairs = facts.comparison.confused[:_MOST_CONFUSED]
    if not pairs:
        return "None on the split it was evaluated on."
    rows = [
        (escape(pair.label), escape(pair.predicted), f"{pair.examples:,}", f"{pair.share:.1%}")
        for pair in pairs
    ]
    return table(("class", "taken for", "images", "of the class"), rows, texts=2)


def _calibration(facts: ReportFacts) -> str:
    bins = facts.comparison.measures.reliability
    rows = [
        (
            f"{low:.2f} to {high:.2f}",
            f"{examples:,}",
            _number(float(confidence)),
            _number(float(accuracy)),
        )
        for low, high, examples, confidence, accuracy in zip(
            bins.edges[:-1],
            bins.edges[1:],
            bins.examples,
            bins.confidence,
            bins.accuracy,
            strict=True,
        )
        if examples
    ]
    error = _number(facts.comparison.measures.scalars.get("ece", math.nan))
    header = ("confidence", "images", "mean confidence", "accuracy")
    return (
        f"Expected calibration error {error}: how far, on average, confidence is from accuracy.\n\n"
        f"{table(header, rows)}"
    )
