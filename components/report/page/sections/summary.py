"""What a person wants to know first: the verdict, why, the main numbers, what to look at."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from components.report.facts import ReportFacts
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
        "without_images": int(np.count_nonzero(metrics.support == 0)),
        "never_answered": int(np.count_nonzero(metrics.confusion.sum(axis=0) == 0)),
        "anomalies": sum(map(len, facts.anomalies.values())),
        "long_wait": _find_long_wait(facts),
    }


def _find_long_wait(facts: ReportFacts) -> float | None:
    """Return the fraction of its time that training waited for input, if `max_wait` is less."""
    waits = facts.waits
    # Nothing is long where the limit is not known.
    limit = facts.header.config.get("input", {}).get("max_wait", 1)
    wait = float(np.median(waits)) if waits else 0.0
    return wait if wait > limit else None
