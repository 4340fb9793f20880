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

    For a text TFDV would find the most frequent values, and hold every image in memory to do so:
    4.1 GB for 6,400 photographs. The formats, which `image_domain` is checked against, come from
    the first bytes of each image, and cost neither time nor memory.

    Names and digests are declared so, too, as TFDV has no other way to leave values uncounted: of a
    hundred or fewer TFX's own SchemaGen would infer that there may be no others, and each image
    that it has not seen would be an anomaly.
    """
    schema = schema_pb2.Schema()
    for name in (ENCODED, FILENAME, SHA256):
        schema.feature.add(name=name, type=schema_pb2.BYTES).image_domain.SetInParent()
    return tfdv.StatsOptions(schema=schema, enable_semantic_domain_stats=True)


def read_statistics(artifact: types.Artifact, split: str) -> Statistics:
    """Read what StatisticsGen wrote about a split."""
    statistics: Statistics = stats_artifact_utils.load_statistics(artifact, split).proto()
    return statistics
