"""Read what TFDV writes and takes: the statistics of a split, and a curated schema."""

import os
from typing import TypeAlias

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from components.contract.errors import DataError
from components.contract.example import ENCODED, LABEL
from components.storage.folder import is_file, read_bytes

Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList


def statistics_file(folder: str, split: str) -> str:
    """Return the path of a split's statistics in the output of StatisticsGen."""
    return os.path.join(folder, f"Split-{split}", "FeatureStats.pb")


def read_statistics(folder: str, split: str) -> Statistics:
    """Read the statistics of a split from the output of StatisticsGen."""
    return Statistics.FromString(read_bytes(statistics_file(folder, split)))


def count_examples(statistics: Statistics) -> int:
    """Return the number of examples."""
    return int(statistics.datasets[0].num_examples)


def find_feature(statistics: Statistics, name: str) -> statistics_pb2.FeatureNameStatistics | None:
    """Return the statistics of a feature; None if no example has it."""
    features = statistics.datasets[0].features
    return next((feature for feature in features if feature.path.step == [name]), None)


def count_values(statistics: Statistics, name: str) -> dict[str, int] | None:
    """Return the count of each value of a text feature, sorted by value; None without the feature.

    Also None if it has more than 1,000 values, of which TFDV keeps only the most frequent.
    """
    feature = find_feature(statistics, name)
    if feature is None:
        return None
    buckets = feature.string_stats.rank_histogram.buckets
    if len(buckets) != feature.string_stats.unique:
        return None
    return dict(sorted((bucket.label, round(bucket.sample_count)) for bucket in buckets))


_REQUIRED = (ENCODED, LABEL)
_START = "Start from that of a run, artifacts/SchemaGen/schema/NUMBER/schema.pbtxt."


def read_schema(path: str) -> schema_pb2.Schema:
    """Read the text form of a schema from `path`, a path or URL.

    Raises `DataError` if there is none, or if it does not describe labeled images.
    """
    if not is_file(path):
        raise DataError(f"validation.schema: {path} does not exist. {_START}")
    try:
        schema = text_format.Parse(read_bytes(path).decode("utf-8-sig"), schema_pb2.Schema())
    except (UnicodeDecodeError, text_format.ParseError) as error:
        reason = str(error).rstrip(".").replace("\n", " ")
        raise DataError(
            f"validation.schema: {path} is not a schema in text format: {reason}. {_START}"
        ) from error
    names = {feature.name for feature in schema.feature}
    if missing := [name for name in _REQUIRED if name not in names]:
        named = " and the feature ".join(missing)
        raise DataError(f"validation.schema: {path} lacks the feature {named}. {_START}")
    return schema
