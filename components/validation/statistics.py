"""Statistics of image records: what TFDV is to compute, and how to read it back."""

from __future__ import annotations

import hashlib
import json
from typing import TypeAlias

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx import types
from tfx.components.statistics_gen import stats_artifact_utils

from components.contract.example import ENCODED, FORMAT, LABEL

Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList


def statistics_options() -> tfdv.StatsOptions:
    """Tell TFDV that the image is an image, and let it count the formats it can decode.

    As a text its most frequent values would be found, for which TFDV would hold every image in
    memory: 4.1 GB for 6,400 photographs. The formats, which `image_domain` is checked against,
    come from the first bytes of each image, and cost neither time nor memory.
    """
    schema = schema_pb2.Schema()
    encoded = schema.feature.add(name=ENCODED, type=schema_pb2.BYTES)
    encoded.image_domain.SetInParent()
    return tfdv.StatsOptions(schema=schema, enable_semantic_domain_stats=True)


def read_statistics(artifact: types.Artifact, split: str) -> Statistics:
    """Read what StatisticsGen wrote of a split."""
    statistics: Statistics = stats_artifact_utils.load_statistics(artifact, split).proto()
    return statistics


def count_examples(statistics: Statistics) -> int:
    """Return the number of examples."""
    return int(statistics.datasets[0].num_examples)


def find_feature(statistics: Statistics, name: str) -> statistics_pb2.FeatureNameStatistics | None:
    """Return the statistics of a feature; None where no example has it."""
    for feature in statistics.datasets[0].features:
        if feature.path.step == [name]:
            return feature
    return None


def count_values(statistics: Statistics, name: str) -> dict[str, int] | None:
    """Return how often each value of a text feature occurs, by value.

    Returns:
        None where there is no such feature, or where TFDV kept only its most frequent values: of
        more than 1,000.
    """
    feature = find_feature(statistics, name)
    if feature is None:
        return None
    buckets = feature.string_stats.rank_histogram.buckets
    if len(buckets) != feature.string_stats.unique:
        return None
    return dict(sorted((bucket.label, round(bucket.sample_count)) for bucket in buckets))


def digest_statistics(statistics: Statistics) -> str:
    """Return 16 hexadecimal digits that are the same for the same examples.

    Counts and rounded means only: TFDV's quantiles depend on the order in which Beam merges them.
    """
    facts: list[object] = [count_examples(statistics)]
    facts += [count_values(statistics, name) for name in (LABEL, FORMAT)]
    for feature in sorted(statistics.datasets[0].features, key=lambda f: list(f.path.step)):
        if feature.WhichOneof("stats") == "num_stats":
            stats = feature.num_stats
            facts += [*feature.path.step, stats.min, stats.max, f"{stats.mean:.6g}"]
    digest: str = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return digest[:16]
