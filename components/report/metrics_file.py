"""The report for machines: `metrics.json`, and the artifacts that Kubeflow's interface draws.

The interface recognizes artifacts by their type names and validates their metadata
(`frontend/src/components/viewers/MetricsVisualizations.tsx` in kubeflow/pipelines).
"""

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np

from components.contract.confidence import Interval
from components.contract.model_files import RATE
from components.metrics.classification_metrics import Comparison, ModelMetrics
from components.report.facts import MATRIX_CLASSES, ReportFacts
from components.report.findings.examination import examine

CLASSIFICATION_FILE = "classification.json"


def write_metrics(facts: ReportFacts) -> str:
    """Return the JSON text; undefined numbers are null.

    `split` evaluated the model, `selection_split` selected its weights, `optimistic` says whether
    they are the same. After cross-validation `selection_split` names the folds, such as "5 folds".
    If there is no test split, `split` names them, too, and `folds` is their number; otherwise it is
    0. `metrics`: name → `value`, 95% `interval`, `baseline`, 95% interval of the `change`.
    `compared`: number of images that `baseline` and `change` are of.
    `confused`: the most frequent pairs; `confusion`: [true, predicted, examples] of each pair.
    `calibration`: one entry per confidence bin. `formats`: the fields of `FormatResult` of each.
    `known`: null, or the fields of `components.metrics.score_metrics.Unknowns`. `search`: that of
    `training.json`, or null.
    """
    comparison = facts.comparison
    labels, confusion = facts.metrics.labels, facts.metrics.confusion
    report = {
        "split": facts.split,
        "folds": facts.folds,
        "selection_split": facts.selection_split,
        "optimistic": facts.is_optimistic,
        "examples": facts.metrics.support.sum(),
        "verdict": asdict(facts.verdict),
        "examination": asdict(examine(facts)),
        "model": _model(facts),
        "data": {
            "folder": facts.header.data,
            "fingerprint": facts.header.fingerprint,
            "span": facts.header.span,
            "examples": facts.balance,
        },
        "code": facts.header.code,
        "compared": comparison.compared,
        "metrics": {name: _metric(comparison, name) for name in facts.metrics.scalars},
        "per_class": _classes(facts.metrics),
        "slices": [asdict(part) for part in comparison.slices],
        "confused": [asdict(pair) for pair in comparison.confused],
        "confusion": [
            (labels[row], labels[column], confusion[row, column])
            for row, column in np.argwhere(confusion)
        ],
        "calibration": [
            {"from": low, "to": high, "examples": examples, "confidence": sure, "accuracy": right}
            for low, high, examples, sure, right in facts.metrics.reliability
        ],
        "formats": [asdict(version) for version in facts.formats],
        "known": asdict(facts.unknowns) if facts.unknowns else None,
        "search": facts.search,
    }
    return json.dumps(_plain(report), indent=1, allow_nan=False) + "\n"


def _model(facts: ReportFacts) -> dict[str, Any]:
    model = facts.header.config["model"]
    return {
        "name": model["build_fn"] or model["name"],
        "size": facts.find_option("transform.size"),
        "weights": model["weights"],
        **facts.model,
        RATE: facts.input_facts[RATE],
    }


def _metric(comparison: Comparison, name: str) -> dict[str, Any]:
    baseline = comparison.baseline
    return {
        "value": comparison.metrics.scalars[name],
        "interval": _ends(comparison.intervals.get(name)),
        "baseline": baseline.scalars[name] if baseline else None,
        "change": _ends(comparison.changes.get(name)),
    }


def _ends(interval: Interval | None) -> tuple[float, float] | None:
    return (interval.low, interval.high) if interval else None


def _classes(metrics: ModelMetrics) -> dict[str, dict[str, Any]]:
    names = ("precision", "recall", "f1", "auc")
    return {
        label: {
            "examples": metrics.support[row],
            **{name: getattr(metrics, name)[row] for name in names},
        }
        for row, label in enumerate(metrics.labels)
    }


def _plain(value: Any) -> Any:
    """Convert NumPy's numbers to Python's, and NaN and infinity to None."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def set_metrics(artifact: Any, metrics: ModelMetrics) -> None:
    """Set the defined metrics as properties of an artifact."""
    numbers = {**metrics.scalars, "examples": float(metrics.support.sum())}
    for name, value in numbers.items():
        if math.isfinite(value):
            artifact.set_float_custom_property(name, value)


def set_classification(artifact: Any, metrics: ModelMetrics) -> str:
    """Set the confusion matrix as a property of an artifact.

    Returns:
        The same as JSON: Kubeflow's launcher expects a file, too.
    """
    shown = metrics.most_mistaken(MATRIX_CLASSES)
    matrix = {
        "annotationSpecs": [{"displayName": metrics.labels[column]} for column in shown],
        "rows": [{"row": metrics.confusion[row, shown].tolist()} for row in shown],
    }
    artifact.set_json_value_custom_property("confusionMatrix", matrix)
    return json.dumps({"confusionMatrix": matrix})
