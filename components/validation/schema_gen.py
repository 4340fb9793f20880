"""ImageSchemaGen: TFX's SchemaGen with corrections for image records, or a curated schema."""

import os
from collections.abc import Sequence
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx import types
from tfx.components.schema_gen import component, executor
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, json_utils

from components.contract import example
from components.contract.configuration import from_json, to_json
from components.contract.example import TRAIN
from components.contract.tfx_classes import Artifacts
from components.validation.config import ValidationConfig
from components.validation.tfdv_files import Statistics, count_values, read_statistics

_CURATED_KEY = "curated_schema"
_CONFIG_KEY = "config"

_WITHOUT_INFERRED_DOMAIN = (
    example.CHANNELS,
    example.ENCODED,
    example.FILENAME,
    example.FORMAT,
    example.LABEL,
    example.SHA256,
)
_TYPES = {
    statistics_pb2.FeatureNameStatistics.INT: schema_pb2.INT,
    statistics_pb2.FeatureNameStatistics.FLOAT: schema_pb2.FLOAT,
    statistics_pb2.FeatureNameStatistics.STRING: schema_pb2.BYTES,
    statistics_pb2.FeatureNameStatistics.BYTES: schema_pb2.BYTES,
}
_COMPARED = (example.FILE_SIZE, example.HEIGHT, example.LUMINANCE, example.WIDTH)


class Executor(executor.Executor):
    """Infers the schema from the train split; the other splits are checked against it."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Write the curated schema, or the inferred and corrected one."""
        uri = artifact_utils.get_single_uri(output_dict["schema"])
        path = os.path.join(uri, executor.DEFAULT_FILE_NAME)
        statistics = artifact_utils.get_single_instance(input_dict["statistics"])
        names = artifact_utils.decode_split_names(statistics.split_names)
        if curated := exec_properties.get(_CURATED_KEY):
            schema = text_format.Parse(curated, schema_pb2.Schema())
        else:
            others = json_utils.dumps([name for name in names if name != TRAIN])
            key = standard_component_specs.EXCLUDE_SPLITS_KEY
            super().Do(input_dict, output_dict, {**exec_properties, key: others})
            schema = io_utils.parse_pbtxt_file(path, schema_pb2.Schema())
            limits = from_json(ValidationConfig, exec_properties.get(_CONFIG_KEY) or "{}")
            correct_schema(schema, read_statistics(statistics.uri, TRAIN), limits)
        add_columns(schema, [read_statistics(statistics.uri, name) for name in names])
        io_utils.write_pbtxt_file(path, schema)


def add_columns(schema: schema_pb2.Schema, splits: Sequence[Statistics]) -> None:
    """Add the manifest's further columns in any split that a schema lacks, in place.

    Every value is allowed, and may be missing.
    """
    known = {feature.name for feature in schema.feature}
    columns = {
        feature.path.step[0]: feature for split in splits for feature in split.datasets[0].features
    }
    for name in sorted(columns.keys() - known):
        if name.startswith(example.COLUMNS):
            feature = schema.feature.add(name=name, type=_TYPES[columns[name].type])
            feature.value_count.max = 1


def correct_schema(
    schema: schema_pb2.Schema, train: Statistics, limits: ValidationConfig | None = None
) -> None:
    """Correct the domains that TFDV infers, and add the limits of drift, in place.

    TFDV would allow only the file names seen in a small dataset, any integer for numeric
    labels, any label if there are more than a hundred, and no color images if all are gray,
    because it takes one channel for a boolean. Of the manifest's further columns, which
    `add_columns` adds again, it would allow the values of the train split.
    """
    limits = limits or ValidationConfig()
    domains = {
        example.LABEL: sorted(count_values(train, example.LABEL) or []),
        example.FORMAT: sorted(set(example.FORMATS)),
    }
    del schema.string_domain[:]
    for feature in [f for f in schema.feature if f.name.startswith(example.COLUMNS)]:
        schema.feature.remove(feature)
    for feature in schema.feature:
        if feature.name in _WITHOUT_INFERRED_DOMAIN:
            feature.ClearField("domain_info")
        if values := domains.get(feature.name):
            schema.string_domain.add(name=feature.name, value=values)
            feature.domain = feature.name
        if feature.name == example.ENCODED:
            feature.image_domain.minimum_supported_image_fraction = 1.0
        _compare(feature, limits)


def _compare(feature: schema_pb2.Feature, limits: ValidationConfig) -> None:
    """Limit the distance between spans (drift) and between splits (skew)."""
    for comparator in ("drift_comparator", "skew_comparator"):
        if feature.name == example.LABEL:
            getattr(feature, comparator).infinity_norm.threshold = limits.max_label_drift
        if feature.name in _COMPARED:
            divergence = getattr(feature, comparator).jensen_shannon_divergence
            divergence.threshold = limits.max_property_drift
            # TFDV's other histogram has buckets of equal width, which one huge image distorts.
            divergence.source.type = schema_pb2.HistogramSelection.QUANTILES


class ImageSchemaGen(component.SchemaGen):
    """TFX's SchemaGen with domains that fit image records.

    Example:
        >>> from components import ImageExampleGen, ImageSchemaGen, ImageStatisticsGen
        >>> example_gen = ImageExampleGen(folder="photos")
        >>> statistics = ImageStatisticsGen(examples=example_gen.outputs["examples"])
        >>> schema_gen = ImageSchemaGen(statistics=statistics.outputs["statistics"])
        >>> sorted(schema_gen.outputs)
        ['schema']
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        *,
        statistics: types.BaseChannel,
        config: ValidationConfig | None = None,
        curated: schema_pb2.Schema | None = None,
    ) -> None:
        """Write `curated`, or infer a schema with the limits of `config`.

        The content of a curated schema is an execution property, so it is part of the cache key
        and travels with the pipeline to a cluster.

        Args:
            statistics: output of ImageStatisticsGen, or StatisticsGen with `statistics_options()`.
            config: limits of the inferred schema; default: `ValidationConfig()`.
            curated: a reviewed schema; default: infer one.
        """
        super().__init__(statistics=statistics)
        self.exec_properties[_CONFIG_KEY] = to_json(config or ValidationConfig())
        if curated is not None:
            self.exec_properties[_CURATED_KEY] = text_format.MessageToString(curated, as_utf8=True)
