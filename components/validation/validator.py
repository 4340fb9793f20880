"""ImageValidator: TFX's ExampleValidator, which also compares splits and spans.

Every split is checked against the schema; the train split also against that of the span or run
before (drift), the others also against the train split (skew).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx import types
from tfx.components.example_validator import component, executor, labels
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils
from tfx.utils import writer_utils

from components.contract.configuration import from_json, to_json
from components.contract.lookup_driver import LookupDriver
from components.validation.config import ValidationConfig
from components.validation.drift import Reference, validate
from components.validation.record_checks import check_images, check_label_changes, check_labels
from components.validation.statistics import read_statistics
from components.validation.statistics_history import find_earlier, read_copy, read_facts, span_of

# The execution property that the driver resolves: the folder of earlier statistics, or "".
FOUND_KEY = "found_statistics"

_KEPT_KEY = "kept_statistics"
_CONFIG_KEY = "config"


class Driver(LookupDriver):
    """Finds earlier statistics before the cache is looked up, so that others make another key."""

    LOOKED_UP_FROM = (_KEPT_KEY, _CONFIG_KEY)

    @staticmethod
    def look_up(
        input_dict: Mapping[str, list[types.Artifact]], exec_properties: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Find the folder of earlier statistics."""
        if _drift(exec_properties) == "off":
            return {FOUND_KEY: ""}
        statistics = artifact_utils.get_single_instance(input_dict["statistics"])
        return {FOUND_KEY: find_earlier(exec_properties[_KEPT_KEY], statistics)}


class Executor(executor.Executor):
    """Validates each split with TFDV, and where TFDV is blind, with `record_checks`."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> Any:
        """Write the anomalies of every split, as ExampleValidator does."""
        statistics = artifact_utils.get_single_instance(input_dict["statistics"])
        self._skew = self._drift = None
        if _drift(exec_properties) != "off":
            train = read_statistics(statistics, "train")
            self._skew = Reference("skew", "in train", train)
            found = exec_properties.get(FOUND_KEY)
            if found is None:
                found = Driver.look_up(input_dict, exec_properties)[FOUND_KEY]
            self._drift = _earlier(found, span_of(statistics)) if found else None
        return super().Do(input_dict, output_dict, exec_properties)

    def _Validate(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> anomalies_pb2.Anomalies:
        """Validate one split; TFX's own calls TFDV without anything to compare with."""
        folder = outputs[labels.SCHEMA_DIFF_PATH]
        is_train = os.path.basename(folder.rstrip("/")) == "Split-train"
        statistics, schema = inputs["statistics"], inputs["schema"]
        anomalies = validate(statistics, schema, self._drift if is_train else self._skew)
        check_images(anomalies, statistics, schema)
        if is_train:
            check_labels(anomalies, statistics, schema)
            if self._drift:
                check_label_changes(anomalies, statistics, self._drift)
        path = os.path.join(folder, executor.DEFAULT_FILE_NAME)
        writer_utils.write_anomalies(path, anomalies)
        return anomalies


def _drift(exec_properties: Mapping[str, Any]) -> str:
    return from_json(ValidationConfig, exec_properties.get(_CONFIG_KEY) or '{"drift": "off"}').drift


def _earlier(copy: str, span: int) -> Reference | None:
    """Return what the train split is to be compared with, named by its span, else by its date."""
    facts, statistics = read_facts(copy), read_copy(copy, "train")
    if facts is None or statistics is None:
        return None
    date = time.strftime("%Y-%m-%d %H:%M", time.gmtime(facts.time))
    name = f"in span {facts.span}" if facts.span != span else f"in the run of {date} UTC"
    return Reference("drift", name, statistics)


class ImageValidator(component.ExampleValidator):
    """ExampleValidator that knows labels, images, and the statistics that AnomalyGate has kept."""

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self,
        *,
        statistics: types.BaseChannel,
        schema: types.BaseChannel,
        kept_statistics: str,
        config: ValidationConfig,
    ) -> None:
        """Compare with what is in the folder `kept_statistics`, unless `config.drift` is "off"."""
        super().__init__(statistics=statistics, schema=schema)
        self.exec_properties[_KEPT_KEY] = kept_statistics
        self.exec_properties[_CONFIG_KEY] = to_json(config)
