"""Our artifact classes; `properties.py` names their properties.

Kubeflow's user interface recognizes types by name, and checks their metadata before it draws them
(`frontend/src/components/viewers/MetricsVisualizations.tsx` in kubeflow/pipelines).
"""

from typing import TypeAlias

from tfx import types

Artifacts: TypeAlias = dict[str, list[types.Artifact]]
"""Name of an input or output → its artifacts, as TFX passes them to an executor."""


class ImageRejects(types.Artifact):
    """Files that ingest rejected or skipped, and duplicates: one JSON object per line."""

    # Kubeflow Pipelines requires names of the form <namespace>.<Type>.
    TYPE_NAME = "images.ImageRejects"


class ImagePredictions(types.Artifact):
    """A model's predictions for the files of a folder: Parquet tables and `summary.json`."""

    TYPE_NAME = "images.ImagePredictions"


class ImageSuspects(types.Artifact):
    """Images whose label, split or quality a person should look at: `suspects.parquet`."""

    TYPE_NAME = "images.ImageSuspects"


class Html(types.Artifact):
    """An HTML page at the artifact's URI."""

    TYPE_NAME = "system.HTML"


class Markdown(types.Artifact):
    """A Markdown text at the artifact's URI."""

    TYPE_NAME = "system.Markdown"


class Metrics(types.Artifact):
    """Numbers, each a custom property: shown as a table, and as columns of the list of runs."""

    TYPE_NAME = "system.Metrics"


class ClassificationMetrics(types.Artifact):
    """A confusion matrix, as a custom property."""

    TYPE_NAME = "system.ClassificationMetrics"
