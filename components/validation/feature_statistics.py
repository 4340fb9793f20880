"""What TFDV's statistics of a split say about its examples and their features."""

from __future__ import annotations

import hashlib
import json
from typing import TypeAlias

from tensorflow_metadata.proto.v0 import statistics_pb2

from components.contract.example import FORMAT, LABEL

Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList


def count_examples(statistics: Statistics) -> int:
    """Return the number of examples."""
    return int(statistics.datasets[0].num_examples)


def find_feature(statistics: Statistics, name: str) -> statistics_pb2.FeatureNameStatistics | None:
    """Return the statistics of a feature; None where no example has it."""
    features = statistics.datasets[0].features
    return next((feature for feature in features if feature.path.step == [name]), None)


def count_values(statistics: Statistics, name: str) -> dict[str, int] | None:
    """Return how often each value of a text feature occurs, in the order of the values.

    Returns:
        None where there is no such feature, or more than 1,000 values: TFDV keeps only the most
        frequent ones then.
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

    Only counts and rounded means: TFDV's quantiles depend on the order in which Beam merges them.
    """
    facts: list[object] = [count_examples(statistics)]
    facts += [count_values(statistics, name) for name in (LABEL, FORMAT)]
    for feature in sorted(statistics.datasets[0].features, key=lambda f: list(f.path.step)):
        if feature.WhichOneof("stats") == "num_stats":
            stats = feature.num_stats
            facts += [*feature.path.step, stats.min, stats.max, f"{stats.mean:.6g}"]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
