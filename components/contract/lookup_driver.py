"""What a driver looks up before the cache is asked: properties that make another key of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_driver
from tfx.orchestration import data_types_utils
from tfx.orchestration.portable import base_driver as portable_driver
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import driver_output_pb2
from tfx.types import artifact_utils

from components.contract.lookup import Lookup, LookupInput


class LookupDriver(base_driver.BaseDriver, portable_driver.BaseDriver):
    """Sets the execution properties that `LOOKUP` returns."""

    LOOKUP: Lookup
    """On Kubeflow Pipelines, which runs no drivers, a step before calls it; a function of a module
    that imports neither TensorFlow nor TFX."""

    LOOKED_UP_FROM: tuple[str, ...]
    """The properties that it reads."""

    LOOKED_AT: tuple[str, ...] = ()
    """The inputs that it reads."""

    def __init__(self, metadata_handle: Any) -> None:
        """Initialise both bases, as TFX's own drivers do: it checks for one and calls the other."""
        base_driver.BaseDriver.__init__(self, metadata_handle)
        portable_driver.BaseDriver.__init__(self, metadata_handle)

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """Look up in a local run."""
        found = self.look_up(execution_info.input_dict, execution_info.exec_properties)
        output = driver_output_pb2.DriverOutput()
        for name, value in found.items():
            data_types_utils.set_metadata_value(output.exec_properties[name], value)
        return output

    @classmethod
    def look_up(
        cls, input_dict: Mapping[str, list[types.Artifact]], exec_properties: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the properties that are looked up from artifacts of TFX."""
        found = {
            name: artifact_utils.get_single_instance(input_dict[name]) for name in cls.LOOKED_AT
        }
        given = {
            name: LookupInput(artifact.uri, int(getattr(artifact, "span", 0) or 0))
            for name, artifact in found.items()
        }
        return cls.LOOKUP(given, exec_properties)
