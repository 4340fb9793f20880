"""ImageSchemaGen: TFX's SchemaGen, put right where it guesses wrongly about image records."""

from __future__ import annotations

import os
from typing import Any

from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx import types
from tfx.components.schema_gen import component, executor
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, json_utils

from components.example import ENCODED, FILENAME, FORMAT, FORMATS, LABEL, SHA256


class Executor(executor.Executor):
    """Infers the schema of the train split, so that the other splits are checked against it."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Write the corrected schema."""
        statistics = artifact_utils.get_single_instance(input_dict["statistics"])
        names = artifact_utils.decode_split_names(statistics.split_names)
        others = json_utils.dumps([name for name in names if name != "train"])
        key = standard_component_specs.EXCLUDE_SPLITS_KEY
        super().Do(input_dict, output_dict, {**exec_properties, key: others})
        uri = artifact_utils.get_single_uri(output_dict["schema"])
        path = os.path.join(uri, executor.DEFAULT_FILE_NAME)
        schema = io_utils.parse_pbtxt_file(path, schema_pb2.Schema())
        train = stats_artifact_utils.load_statistics(statistics, "train").proto()
        correct_schema(schema, train)
        io_utils.write_pbtxt_file(path, schema)


def correct_schema(
    schema: schema_pb2.Schema, train: statistics_pb2.DatasetFeatureStatisticsList
) -> None:
    """Replace what TFDV infers from the values of text features, in place.

    A few images make it list their very names as the only ones allowed; labels that are numbers
    make it allow any integer; more than a hundred labels make it allow any label.
    """
    domains = {LABEL: _all_values(train, LABEL), FORMAT: list(FORMATS)}
    del schema.string_domain[:]
    for feature in schema.feature:
        if feature.name in (ENCODED, FILENAME, FORMAT, LABEL, SHA256):
            feature.ClearField("domain_info")
        if values := domains.get(feature.name):
            schema.string_domain.add(name=feature.name, value=values)
            feature.domain = feature.name


def _all_values(
    statistics: statistics_pb2.DatasetFeatureStatisticsList, name: str
) -> list[str] | None:
    """Return the values of a text feature, sorted; None where the statistics keep only some."""
    for feature in statistics.datasets[0].features:
        if feature.path.step == [name]:
            buckets = feature.string_stats.rank_histogram.buckets
            values = sorted(bucket.label for bucket in buckets)
            return values if len(values) == feature.string_stats.unique else None
    return None


class ImageSchemaGen(component.SchemaGen):
    """TFX's SchemaGen with domains that fit image records."""

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)
