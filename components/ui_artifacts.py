"""Artifacts that Kubeflow's user interface draws, and the metadata it reads for that.

The interface knows them by their type names and checks their metadata before it draws anything
(`frontend/src/components/viewers/MetricsVisualizations.tsx` in kubeflow/pipelines).
"""

from __future__ import annotations

import math
import os

from tfx import types
from tfx.dsl.io import fileio

from components.measures import Measures, Roc
from components.object_store import register_object_stores

# Name the texts in a local run, where an artifact is a folder.
PAGE_FILE = "report.html"
CARD_FILE = "model_card.md"

# More make a matrix of more cells than anyone looks at, and metadata that MLMD may refuse: its
# messages are limited to 4 MB.
MOST_CLASSES = 50


class Html(types.Artifact):
    """A page, which the interface loads from the artifact's URI."""

    TYPE_NAME = "system.HTML"


class Markdown(types.Artifact):
    """A text, which the interface loads likewise."""

    TYPE_NAME = "system.Markdown"


class Metrics(types.Artifact):
    """Numbers, one a custom property: a table, and columns of the list of runs."""

    TYPE_NAME = "system.Metrics"


class ClassificationMetrics(types.Artifact):
    """A confusion matrix and a ROC curve, each a custom property."""

    TYPE_NAME = "system.ClassificationMetrics"


def write_text(text: str, uri: str, name: str) -> None:
    """Write to the file `uri`, or as `name` into it where TFX has made it a folder: a local run."""
    path = _text_path(uri, name)
    fileio.makedirs(os.path.dirname(path))
    with fileio.open(path, "w") as file:
        file.write(text)


def read_text(uri: str, name: str) -> str:
    """Read what `write_text` has written."""
    with fileio.open(_text_path(uri, name)) as file:
        return str(file.read())


def _text_path(uri: str, name: str) -> str:
    register_object_stores()
    return os.path.join(uri, name) if fileio.isdir(uri) else uri


def set_metrics(artifact: Metrics, measures: Measures) -> None:
    """Record the numbers over all examples, apart from those that are not defined."""
    numbers = {**measures.scalars, "examples": float(measures.support.sum())}
    for name, value in numbers.items():
        if math.isfinite(value):
            artifact.set_float_custom_property(name, value)


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
