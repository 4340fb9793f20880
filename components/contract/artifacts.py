"""Every artifact class of ours, and the properties that one stage writes and another reads.

Kubeflow's interface knows its own types by their names, and checks their metadata before it draws
anything (`frontend/src/components/viewers/MetricsVisualizations.tsx` in kubeflow/pipelines).
"""

from __future__ import annotations

from tfx import types


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


# Custom properties of the examples: the folder that was read, and how.
FOLDER_PROPERTY = "folder"


CONFIG_PROPERTY = "ingest"


class ImageRejects(types.Artifact):
    """The files that ingest did not use, and duplicates: one JSON object a line."""

    # Kubeflow Pipelines takes names of the form <namespace>.<Type> only.
    TYPE_NAME = "images.ImageRejects"


FOUND_PROPERTY = "found"


VERSION_PROPERTY = "version"


SPLIT_PROPERTY = "split"


MAJORITY_PROPERTY = "share_of_most_frequent_class"
