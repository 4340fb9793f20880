"""Statistics of image records: what TFDV computes, and where StatisticsGen wrote it."""

from __future__ import annotations

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.components.statistics_gen import stats_artifact_utils

from components.contract.example import ENCODED, FILENAME, SHA256
from components.validation.feature_statistics import Statistics


def statistics_options() -> tfdv.StatsOptions:
    """Declare the image as an image, so that TFDV counts the formats it can decode.

    And names and digests as values that occur once: from a hundred or fewer of them TFX's own
    SchemaGen would infer that no other name is allowed, and every image of another split would be
    an anomaly.

    For a text TFDV would find the most frequent values, and hold every image in memory to do so:
    4.1 GB for 6,400 photographs. The formats, which `image_domain` is checked against, come from
    the first bytes of each image, and cost neither time nor memory.
    """
    schema = schema_pb2.Schema()
    encoded = schema.feature.add(name=ENCODED, type=schema_pb2.BYTES)
    encoded.image_domain.SetInParent()
    for name in (FILENAME, SHA256):
        unique = schema.feature.add(name=name, type=schema_pb2.BYTES)
        unique.string_domain.is_categorical = schema_pb2.StringDomain.CATEGORICAL_NO
    return tfdv.StatsOptions(schema=schema, enable_semantic_domain_stats=True)


def read_statistics(artifact: types.Artifact, split: str) -> Statistics:
    """Read what StatisticsGen wrote about a split."""
    statistics: Statistics = stats_artifact_utils.load_statistics(artifact, split).proto()
    return statistics
