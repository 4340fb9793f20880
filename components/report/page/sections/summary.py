"""What a person wants to know first: the verdict, why, the main numbers, what to look at."""

from __future__ import annotations

import math
from typing import Any

from components.report.facts import ReportFacts
from components.report.findings import examine
from components.report.page.sections.metrics import judge


def describe_summary(facts: ReportFacts) -> dict[str, Any]:
    """Judge the change of accuracy, and find what stands out."""
    comparison, metrics = facts.comparison, facts.metrics
    words, kind = judge(comparison.changes.get("accuracy"))
    accuracy = metrics.scalars["accuracy"]
    return {
        "accuracy": accuracy,
        "macro_f1": metrics.scalars.get("macro_f1", math.nan),
        "interval": comparison.intervals.get("accuracy"),
        "change": comparison.changes.get("accuracy"),
        "difference": accuracy - comparison.baseline.scalars["accuracy"]
        if comparison.baseline
        else math.nan,
        "judgement": words,
        "kind": kind,
        "examination": examine(facts),
    }
