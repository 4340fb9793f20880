"""Compares statistics with those of the span before, or of the train split, by TFDV's measures.

TFDV knows no numbers of examples: of ten images each, two samples of the same population differ
by any threshold. So its thresholds are raised to what chance alone would make.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2

from components.validation.statistics import Statistics, count_examples, count_values, find_feature

_Info: TypeAlias = anomalies_pb2.AnomalyInfo
_Measurement: TypeAlias = anomalies_pb2.DriftSkewInfo.Measurement

# Three were exceeded by up to 2 of 100 pairs of samples from one population, four by none.
_STANDARD_ERRORS = 4.0

# Two histograms of ten quantiles each have 19 degrees of freedom when they are laid on each other.
# Of samples of n and m from one population their divergence, in bits, is then distributed as
# (1/n + 1/m) / (8 ln 2) times chi-squared, which is below 43.8 in 999 of 1000 cases.
_CHANCE_DIVERGENCE = 43.8 / (8 * math.log(2))


@dataclass(frozen=True)
class Reference:
    """What a split is compared with."""

    kind: Literal["drift", "skew"]
    """drift: with the same split before. skew: with the train split of the same run."""
    name: str
    """As a sentence names it: "in span 3"."""
    statistics: Statistics


def validate(
    statistics: Statistics, schema: schema_pb2.Schema, reference: Reference | None
) -> anomalies_pb2.Anomalies:
    """Check the statistics of a split against the schema and, if there is one, the reference."""
    if reference is None:
        return tfdv.validate_statistics(statistics, schema)
    raised = _raise_thresholds(schema, statistics, reference)
    side = "previous_statistics" if reference.kind == "drift" else "serving_statistics"
    anomalies = tfdv.validate_statistics(statistics, raised, **{side: reference.statistics})
    _put_into_words(anomalies, statistics, reference)
    return anomalies


def _raise_thresholds(
    schema: schema_pb2.Schema, statistics: Statistics, reference: Reference
) -> schema_pb2.Schema:
    raised = schema_pb2.Schema()
    raised.CopyFrom(schema)
    samples = (statistics, reference.statistics)
    chance = sum(1 / max(1, count_examples(sample)) for sample in samples)
    for feature in raised.feature:
        comparator = getattr(feature, f"{reference.kind}_comparator")
        if comparator.HasField("infinity_norm"):
            share = _most_uncertain_share(feature.name, *samples)
            error = math.sqrt(share * (1 - share) * chance)
            _raise(comparator.infinity_norm, _STANDARD_ERRORS * error)
        if comparator.HasField("jensen_shannon_divergence"):
            _raise(comparator.jensen_shannon_divergence, _CHANCE_DIVERGENCE * chance)
    return raised


def _raise(measure: Any, by_chance: float) -> None:
    measure.threshold = max(measure.threshold, min(1.0, by_chance))


def _most_uncertain_share(name: str, *samples: Statistics) -> float:
    """Return the share of a value in all samples together that is nearest to one half."""
    total: dict[str, int] = {}
    for sample in samples:
        for value, count in (count_values(sample, name) or {}).items():
            total[value] = total.get(value, 0) + count
    number = sum(total.values())
    return min((n / number for n in total.values()), key=lambda p: abs(p - 0.5), default=0.5)


def _put_into_words(
    anomalies: anomalies_pb2.Anomalies, statistics: Statistics, reference: Reference
) -> None:
    """Replace TFDV's texts on drift and skew, which name distances only."""
    for compared in anomalies.drift_skew_info:
        name = ".".join(compared.path.step)
        if name not in anomalies.anomaly_info:
            continue
        info = anomalies.anomaly_info[name]
        measured = {m.type: m for m in getattr(compared, f"{reference.kind}_measurements")}
        for reason in info.reason:
            if reason.type == _Info.COMPARATOR_L_INFTY_HIGH:
                distance = measured[_Measurement.L_INFTY]
                reason.description = _describe_shares(name, distance, statistics, reference)
            if reason.type == _Info.COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH:
                divergence = measured[_Measurement.JENSEN_SHANNON_DIVERGENCE]
                reason.description = _describe_values(name, divergence, statistics, reference)
        info.description = " ".join(reason.description for reason in info.reason)


def _describe_shares(
    name: str, distance: _Measurement, statistics: Statistics, reference: Reference
) -> str:
    here, there = (_shares(name, sample) for sample in (statistics, reference.statistics))
    farthest = max(
        sorted({*here, *there}), key=lambda value: abs(here.get(value, 0) - there.get(value, 0))
    )
    return (
        f"{here.get(farthest, 0):.1%} are {farthest!r}, {reference.name} "
        f"{there.get(farthest, 0):.1%}; shares may differ by {distance.threshold:.1%} here."
    )


def _shares(name: str, statistics: Statistics) -> dict[str, float]:
    feature = find_feature(statistics, name)
    buckets = feature.string_stats.rank_histogram.buckets if feature else []
    total = max(1, feature.string_stats.common_stats.num_non_missing if feature else 1)
    return {bucket.label: bucket.sample_count / total for bucket in buckets}


def _describe_values(
    name: str, divergence: _Measurement, statistics: Statistics, reference: Reference
) -> str:
    here, there = (find_feature(sample, name) for sample in (statistics, reference.statistics))
    facts = f"the Jensen-Shannon divergence is {divergence.value:.2f}"
    if here and there and here.WhichOneof("stats") == "num_stats":
        facts = (
            f"{here.num_stats.mean:.4g} on average, {reference.name} "
            f"{there.num_stats.mean:.4g}; {facts}"
        )
    return f"The values differ: {facts}, at most {divergence.threshold:.2f} is allowed here."
