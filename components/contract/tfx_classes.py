"""Our classes for TFX: artifacts, whose properties `properties.py` names, and a driver.

Kubeflow's user interface recognizes types by name, and checks their metadata before it draws them
(`frontend/src/components/viewers/MetricsVisualizations.tsx` in kubeflow/pipelines).
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from tfx import types
from tfx.dsl.components.base import base_driver
from tfx.orchestration import data_types_utils
from tfx.orchestration.portable import base_driver as portable_driver
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import driver_output_pb2
from tfx.types import artifact_utils

from components.contract.properties import EXAMPLES_KEY_PROPERTY, Lookup, LookupInput

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


class LookupDriver(base_driver.BaseDriver, portable_driver.BaseDriver):
    """Sets the properties that `lookup_function` returns, before TFX looks up its cache."""

    lookup_function: Lookup
    """Kubeflow Pipelines runs no drivers: there, a separate task calls it before the step. Its
    module imports neither TensorFlow nor TFX."""

    lookup_properties: tuple[str, ...]
    """The execution properties that it reads."""

    lookup_inputs: tuple[str, ...] = ()
    """The inputs that it reads."""

    def __init__(self, metadata_handle: Any) -> None:
        """Initialize both bases: TFX checks for one and calls the other."""
        base_driver.BaseDriver.__init__(self, metadata_handle)
        portable_driver.BaseDriver.__init__(self, metadata_handle)

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """Resolve the properties in a local run."""
        resolved = self.look_up(execution_info.input_dict, execution_info.exec_properties)
        output = driver_output_pb2.DriverOutput()
        for name, value in resolved.items():
            data_types_utils.set_metadata_value(output.exec_properties[name], value)
        return output

    @classmethod
    def look_up(
        cls, input_dict: Mapping[str, list[types.Artifact]], exec_properties: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Call `lookup_function` with TFX's artifacts."""
        artifacts = {
            name: artifact_utils.get_single_instance(input_dict[name]) for name in cls.lookup_inputs
        }
        given = {
            name: LookupInput(
                artifact.uri,
                int(getattr(artifact, "span", 0) or 0),
                artifact.get_string_custom_property(EXAMPLES_KEY_PROPERTY),
            )
            for name, artifact in artifacts.items()
        }
        return cls.lookup_function(given, exec_properties)
