"""Artifacts that Kubeflow's user interface draws, and the metadata it reads for that.

The interface knows them by their type names and checks their metadata before it draws anything
(`frontend/src/components/viewers/MetricsVisualizations.tsx` in kubeflow/pipelines).
"""

from __future__ import annotations

import os

import tensorflow as tf
from tfx import types

from components.predictions import Measures, Roc

# Names the page in a local run, where the artifact is a folder.
PAGE_FILE = "report.html"

# More make a matrix of more cells than anyone looks at, and metadata that MLMD may refuse: its
# messages are limited to 4 MB.
MOST_CLASSES = 50


class Html(types.Artifact):
    """A page, which the interface loads from the artifact's URI."""

    TYPE_NAME = "system.HTML"


class Metrics(types.Artifact):
    """Numbers, one a custom property: a table, and columns of the list of runs."""

    TYPE_NAME = "system.Metrics"


class ClassificationMetrics(types.Artifact):
    """A confusion matrix and a ROC curve, each a custom property."""

    TYPE_NAME = "system.ClassificationMetrics"


def write_page(page: str, uri: str) -> None:
    """Write `page` to the file `uri`, or into it where TFX has made it a folder: a local run."""
    path = os.path.join(uri, PAGE_FILE) if tf.io.gfile.isdir(uri) else uri
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "w") as file:
        file.write(page)


def set_metrics(artifact: Metrics, measures: Measures) -> None:
    """Record the numbers over all examples."""
    numbers = {
        "accuracy": measures.accuracy,
        "balanced_accuracy": measures.balanced_accuracy,
        "macro_f1": measures.macro_f1,
        "loss": measures.loss,
        "examples": measures.confusion.sum(),
    }
    for name, value in numbers.items():
        artifact.set_float_custom_property(name, float(value))


def set_classification(artifact: ClassificationMetrics, measures: Measures) -> None:
    """Record the confusion matrix of at most `MOST_CLASSES`, and the ROC curve if there is one."""
    shown = measures.most_mistaken(MOST_CLASSES)
    matrix = {
        "annotationSpecs": [{"displayName": measures.labels[column]} for column in shown],
        "rows": [{"row": measures.confusion[row, shown].tolist()} for row in shown],
    }
    artifact.set_json_value_custom_property("confusionMatrix", matrix)
    if measures.roc:
        artifact.set_json_value_custom_property("confidenceMetrics", _points(measures.roc))


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
