"""Artifacts that Kubeflow's user interface draws, and the metadata it reads for that.

The interface knows them by their type names and checks their metadata before it draws anything
(`frontend/src/components/viewers/MetricsVisualizations.tsx` in kubeflow/pipelines).
"""

from __future__ import annotations

import math
from typing import Any

from components.evaluation.metrics.classification_metrics import ModelMetrics
from components.evaluation.metrics.curves import Roc

# More make a matrix of more cells than anyone looks at, and metadata that MLMD may refuse: its
# messages are limited to 4 MB.
MOST_CLASSES = 50


def set_metrics(artifact: Any, metrics: ModelMetrics) -> None:
    """Record the numbers over all examples, apart from those that are not defined."""
    numbers = {**metrics.scalars, "examples": float(metrics.support.sum())}
    for name, value in numbers.items():
        if math.isfinite(value):
            artifact.set_float_custom_property(name, value)


def set_classification(artifact: Any, metrics: ModelMetrics) -> None:
    """Record the confusion matrix of at most `MOST_CLASSES`, and the ROC curve if there is one."""
    shown = metrics.most_mistaken(MOST_CLASSES)
    matrix = {
        "annotationSpecs": [{"displayName": metrics.labels[column]} for column in shown],
        "rows": [{"row": metrics.confusion[row, shown].tolist()} for row in shown],
    }
    artifact.set_json_value_custom_property("confusionMatrix", matrix)
    if metrics.roc:
        artifact.set_json_value_custom_property("confidenceMetrics", _points(metrics.roc))


def _points(roc: Roc) -> list[dict[str, float]]:
    columns = zip(
        roc.thresholds.tolist(),
        roc.recall.tolist(),
        roc.false_positive_rate.tolist(),
        strict=True,
    )
    return [
        {"confidenceThreshold": threshold, "recall": recall, "falsePositiveRate": rate}
        for threshold, recall, rate in columns
    ]
