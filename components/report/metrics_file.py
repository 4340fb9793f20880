"""`metrics.json`: what the report shows, as numbers for machines."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np

from components.evaluation.classification_metrics import Comparison, Interval, ModelMetrics
from components.report.facts import ReportFacts

METRICS_FILE = "metrics.json"


def write_metrics(facts: ReportFacts) -> str:
    """Return the JSON text; a number that is not defined is null.

    Keys: `split`, `examples`, `blessed`, `reasons`, `data` (`folder`, `fingerprint`, `span`),
    `code`; `metrics`: name → `value`, `interval` of 95 %, `baseline`, `change` of 95 %;
    `per_class`: label → `examples`, `precision`, `recall`, `f1`, `auc`, `average_precision`;
    `slices`; `confused`, the most frequent ones; `confusion`: [true, predicted, examples] of each
    pair that occurs; `calibration`: one entry per bin of confidence.
    """
    comparison, measures = facts.comparison, facts.comparison.measures
    found = {
        "split": facts.split,
        "examples": measures.support.sum(),
        "blessed": facts.blessed,
        "reasons": facts.reasons,
        "data": {
            "folder": facts.header.data,
            "fingerprint": facts.header.fingerprint,
            "span": facts.header.span,
            "examples": facts.balance,
        },
        "code": facts.header.code,
        "metrics": {name: _metric(comparison, name) for name in measures.scalars},
        "per_class": _classes(measures),
        "slices": [asdict(part) for part in comparison.slices],
        "confused": [asdict(pair) for pair in comparison.confused],
        "confusion": _confusion(measures),
        "calibration": _calibration(measures),
    }
    return json.dumps(_plain(found), indent=1, allow_nan=False) + "\n"


def _metric(comparison: Comparison, name: str) -> dict[str, Any]:
    baseline = comparison.baseline
    return {
        "value": comparison.measures.scalars[name],
        "interval": _ends(comparison.intervals.get(name)),
        "baseline": baseline.scalars[name] if baseline else None,
        "change": _ends(comparison.changes.get(name)),
    }


def _ends(interval: Interval | None) -> tuple[float, float] | None:
    return (interval.low, interval.high) if interval else None


def _classes(measures: ModelMetrics) -> dict[str, dict[str, Any]]:
    names = ("precision", "recall", "f1", "auc", "average_precision")
    return {
        label: {
            "examples": measures.support[row],
            **{name: getattr(measures, name)[row] for name in names},
        }
        for row, label in enumerate(measures.labels)
    }


def _confusion(measures: ModelMetrics) -> list[tuple[str, str, Any]]:
    labels = measures.labels
    return [
        (labels[row], labels[column], measures.confusion[row, column])
        for row, column in np.argwhere(measures.confusion)
    ]


def _calibration(measures: ModelMetrics) -> list[dict[str, Any]]:
    bins = measures.reliability
    return [
        {
            "from": bins.edges[number],
            "to": bins.edges[number + 1],
            "examples": bins.examples[number],
            "confidence": bins.confidence[number],
            "accuracy": bins.accuracy[number],
        }
        for number in range(len(bins.examples))
    ]


def _plain(value: Any) -> Any:
    """Turn NumPy's numbers into Python's, and those that JSON does not have into None."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
