"""A driver that resolves execution properties before TFX looks up its cache, which they key."""

from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_driver
from tfx.orchestration import data_types_utils
from tfx.orchestration.portable import base_driver as portable_driver
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import driver_output_pb2
from tfx.types import artifact_utils

from components.contract.properties import EXAMPLES_KEY_PROPERTY, Lookup, LookupInput


class LookupDriver(base_driver.BaseDriver, portable_driver.BaseDriver):
    """Sets the execution properties that `lookup_function` returns."""

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
