"""Every artifact class of ours; what one stage writes about them is in `properties.py`.

Kubeflow's interface knows its own types by their names, and checks their metadata before it draws
anything (`frontend/src/components/viewers/MetricsVisualizations.tsx` in kubeflow/pipelines).
"""

from __future__ import annotations

from typing import TypeAlias

from tfx import types

Artifacts: TypeAlias = dict[str, list[types.Artifact]]
"""What TFX gives an executor: name of an input or output → its artifacts."""


class ImageRejects(types.Artifact):
    """The files that ingest did not use, and duplicates: one JSON object a line."""

    # Kubeflow Pipelines takes names of the form <namespace>.<Type> only.
    TYPE_NAME = "images.ImageRejects"


class ImagePredictions(types.Artifact):
    """A model's answers to the files of a folder: Parquet tables, and `summary.json`."""

    TYPE_NAME = "images.ImagePredictions"


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
