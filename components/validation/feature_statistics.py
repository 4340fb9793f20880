"""Read facts about examples and features from TFDV's statistics of a split."""

import hashlib
import json
import os
from typing import TypeAlias

from tensorflow_metadata.proto.v0 import statistics_pb2

from components.contract.example import FORMAT, LABEL
from components.storage.folder import read_bytes

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


def digest_statistics(statistics: Statistics) -> str:
    """Return 16 hexadecimal digits that are equal for equal examples.

    The digest covers counts and rounded means. TFDV's quantiles depend on Beam's merge order.
    """
    facts: list[object] = [count_examples(statistics)]
    facts += [count_values(statistics, name) for name in (LABEL, FORMAT)]
    for feature in sorted(statistics.datasets[0].features, key=lambda f: list(f.path.step)):
        if feature.WhichOneof("stats") == "num_stats":
            stats = feature.num_stats
            facts += [*feature.path.step, stats.min, stats.max, f"{stats.mean:.6g}"]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
