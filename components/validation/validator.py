"""ImageValidator: TFX's ExampleValidator that also compares splits and spans.

Every split is checked against the schema. The train split is also compared with the previous span
or run (drift), and the other splits with the train split (skew).
"""

import os
import time
from typing import Any

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2
from tfx import types
from tfx.components.example_validator import component, executor, labels
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils
from tfx.utils import writer_utils

from components.contract.configuration import to_json
from components.contract.example import TRAIN
from components.contract.tfx_classes import Artifacts, LookupDriver
from components.validation.anomalies import (
    Reference,
    check_images,
    check_label_changes,
    check_labels,
    explain_drift,
    raise_thresholds,
)
from components.validation.config import ValidationConfig
from components.validation.lookup import (
    CONFIG_KEY,
    FOUND_KEY,
    HISTORY_KEY,
    is_drift_off,
    look_up,
    read_entry,
    read_entry_statistics,
)
from components.validation.tfdv_files import Statistics, read_statistics


class Driver(LookupDriver):
    """Finds earlier statistics before the cache lookup, so that they are part of the cache key."""

    lookup_function = staticmethod(look_up)
    lookup_properties = (HISTORY_KEY, CONFIG_KEY)
    lookup_inputs = ("statistics",)


class Executor(executor.Executor):
    """Validates each split with TFDV and with `components.validation.anomalies`."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> Any:
        """Write the anomalies of every split, as ExampleValidator does."""
        statistics = artifact_utils.get_single_instance(input_dict["statistics"])
        self._skew = self._drift = None
        if not is_drift_off(exec_properties):
            self._skew = Reference("skew", "in train", read_statistics(statistics.uri, TRAIN))
            earlier = exec_properties.get(FOUND_KEY)
            if earlier is None:
                earlier = Driver.look_up(input_dict, exec_properties)[FOUND_KEY]
            span = int(statistics.span or 0)
            self._drift = _read_reference(earlier, span) if earlier else None
        return super().Do(input_dict, output_dict, exec_properties)

    def _Validate(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> anomalies_pb2.Anomalies:
        """Validate one split. TFX's method calls TFDV without a reference."""
        folder = outputs[labels.SCHEMA_DIFF_PATH]
        is_train = os.path.basename(folder.rstrip("/")) == f"Split-{TRAIN}"
        statistics, schema = inputs["statistics"], inputs["schema"]
        anomalies = _validate(statistics, schema, self._drift if is_train else self._skew)
        check_images(anomalies, statistics, schema)
        if is_train:
            check_labels(anomalies, statistics, schema)
            if self._drift:
                check_label_changes(anomalies, statistics, self._drift)
        path = os.path.join(folder, executor.DEFAULT_FILE_NAME)
        writer_utils.write_anomalies(path, anomalies)
        return anomalies


def _validate(
    statistics: Statistics, schema: schema_pb2.Schema, reference: Reference | None
) -> anomalies_pb2.Anomalies:
    """Return TFDV's anomalies, with thresholds above what chance causes and texts that explain."""
    if reference is None:
        return tfdv.validate_statistics(statistics, schema)
    raised = raise_thresholds(schema, statistics, reference)
    side = "previous_statistics" if reference.kind == "drift" else "serving_statistics"
    anomalies = tfdv.validate_statistics(statistics, raised, **{side: reference.statistics})
    explain_drift(anomalies, statistics, reference)
    return anomalies


def _read_reference(path: str, span: int) -> Reference | None:
    """Return the reference for the train split, named by its span or else its date."""
    entry, statistics = read_entry(path), read_entry_statistics(path, TRAIN)
    if entry is None or statistics is None:
        return None
    date = time.strftime("%Y-%m-%d %H:%M", time.gmtime(entry.time))
    name = f"in span {entry.span}" if entry.span != span else f"in the run of {date} UTC"
    return Reference("drift", name, statistics)


class ImageValidator(component.ExampleValidator):
    """ExampleValidator that checks labels, images and drift from earlier runs.

    Example:
        >>> from components import ImageExampleGen, ImageSchemaGen, ImageStatisticsGen
        >>> from components import ImageValidator
        >>> example_gen = ImageExampleGen(folder="photos")
        >>> count = ImageStatisticsGen(examples=example_gen.outputs["examples"])
        >>> statistics = count.outputs["statistics"]
        >>> schema = ImageSchemaGen(statistics=statistics).outputs["schema"]
        >>> validator = ImageValidator(statistics=statistics, schema=schema)
        >>> sorted(validator.outputs)
        ['anomalies']
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self,
        *,
        statistics: types.BaseChannel,
        schema: types.BaseChannel,
        statistics_history: str = "",
        config: ValidationConfig | None = None,
    ) -> None:
        """Compare every split with the schema, the train split and earlier runs.

        Args:
            statistics: output of ImageStatisticsGen, or StatisticsGen with `statistics_options()`.
            schema: output of ImageSchemaGen or any other SchemaGen.
            statistics_history: folder that AnomalyGate adds to. Empty: no earlier runs.
            config: drift thresholds; default: `ValidationConfig()`.
        """
        super().__init__(statistics=statistics, schema=schema)
        self.exec_properties[HISTORY_KEY] = statistics_history
        self.exec_properties[CONFIG_KEY] = to_json(config or ValidationConfig())
