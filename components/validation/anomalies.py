"""Find what TFDV overlooks in image records, and keep it from reporting drift by chance.

TFDV compares statistics with the previous span or the train split by distances that ignore the
number of examples: two samples of ten images from the same population exceed any threshold. So the
thresholds are raised above what chance alone causes.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tensorflow_metadata.proto.v0 import anomalies_pb2, path_pb2, schema_pb2

from components.contract.example import ENCODED, LABEL
from components.contract.printable import name_some
from components.validation.tfdv_files import (
    Statistics,
    count_examples,
    count_values,
    find_feature,
)

_Info: TypeAlias = anomalies_pb2.AnomalyInfo
_Measurement: TypeAlias = anomalies_pb2.DriftSkewInfo.Measurement

# Up to 2 of 100 pairs of samples from one population exceeded three, none exceeded four.
_STANDARD_ERRORS = 4.0

# Two superimposed histograms of ten quantiles each have 19 degrees of freedom. The divergence in
# bits of samples of sizes n and m from one population is distributed as (1/n + 1/m) / (8 ln 2)
# times chi-squared, which is below 43.8 in 999 of 1000 cases.
_CHANCE_DIVERGENCE = 43.8 / (8 * math.log(2))

# TFDV counts image formats only if there are this many images, and if it knows the format of this
# fraction of them. Otherwise it reports nothing.
_MIN_COUNTED = 100
_MIN_COUNTED_FRACTION = 0.8

_MAX_NAMED = 10


@dataclass(frozen=True)
class Reference:
    """Statistics to compare a split with."""

    kind: Literal["drift", "skew"]
    """drift: the same split of an earlier run. skew: the train split of the same run."""
    name: str
    """Phrase for messages, such as "in span 3"."""
    statistics: Statistics


def raise_thresholds(
    schema: schema_pb2.Schema, statistics: Statistics, reference: Reference
) -> schema_pb2.Schema:
    """Return the schema with every drift or skew threshold above what chance causes."""
    raised = schema_pb2.Schema()
    raised.CopyFrom(schema)
    samples = (statistics, reference.statistics)
    chance = sum(1 / max(1, count_examples(sample)) for sample in samples)
    for feature in raised.feature:
        comparator = getattr(feature, f"{reference.kind}_comparator")
        if comparator.HasField("infinity_norm"):
            fraction = _most_uncertain_fraction(feature.name, *samples)
            error = math.sqrt(fraction * (1 - fraction) * chance)
            _raise(comparator.infinity_norm, _STANDARD_ERRORS * error)
        if comparator.HasField("jensen_shannon_divergence"):
            _raise(comparator.jensen_shannon_divergence, _CHANCE_DIVERGENCE * chance)
    return raised


def _raise(distance: Any, by_chance: float) -> None:
    distance.threshold = max(distance.threshold, min(1.0, by_chance))


def _most_uncertain_fraction(name: str, *samples: Statistics) -> float:
    """Return the fraction nearest to one half among all values of the pooled samples."""
    total: Counter[str] = Counter()
    for sample in samples:
        total.update(count_values(sample, name) or {})
    fractions = (count / total.total() for count in total.values())
    return min(fractions, key=lambda fraction: abs(fraction - 0.5), default=0.5)


def explain_drift(
    anomalies: anomalies_pb2.Anomalies, statistics: Statistics, reference: Reference
) -> None:
    """Replace TFDV's texts on drift and skew, which only name distances, in place."""
    for compared in anomalies.drift_skew_info:
        name = ".".join(compared.path.step)
        if name not in anomalies.anomaly_info:
            continue
        info = anomalies.anomaly_info[name]
        measured = {m.type: m for m in getattr(compared, f"{reference.kind}_measurements")}
        for reason in info.reason:
            if reason.type == _Info.COMPARATOR_L_INFTY_HIGH:
                distance = measured[_Measurement.L_INFTY]
                reason.description = _explain_fractions(name, distance, statistics, reference)
            if reason.type == _Info.COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH:
                divergence = measured[_Measurement.JENSEN_SHANNON_DIVERGENCE]
                reason.description = _explain_values(name, divergence, statistics, reference)
        info.description = " ".join(reason.description for reason in info.reason)


def _explain_fractions(
    name: str, distance: _Measurement, statistics: Statistics, reference: Reference
) -> str:
    here, there = (_fractions(name, sample) for sample in (statistics, reference.statistics))
    values = sorted({*here, *there})
    farthest = max(values, key=lambda value: abs(here.get(value, 0) - there.get(value, 0)))
    return (
        f"{farthest!r}: {here.get(farthest, 0):.1%}, {reference.name} "
        f"{there.get(farthest, 0):.1%}; the limit is a difference of {distance.threshold:.1%}."
    )


def _fractions(name: str, statistics: Statistics) -> dict[str, float]:
    feature = find_feature(statistics, name)
    if feature is None:
        return {}
    texts = feature.string_stats
    total = max(1, texts.common_stats.num_non_missing)
    return {bucket.label: bucket.sample_count / total for bucket in texts.rank_histogram.buckets}


def _explain_values(
    name: str, divergence: _Measurement, statistics: Statistics, reference: Reference
) -> str:
    here, there = (find_feature(sample, name) for sample in (statistics, reference.statistics))
    facts = f"the Jensen-Shannon divergence is {divergence.value:.2f}"
    if here and there and here.WhichOneof("stats") == "num_stats":
        means = f"{here.num_stats.mean:.4g} on average, {reference.name} {there.num_stats.mean:.4g}"
        facts = f"{means}; {facts}"
    return f"The values differ: {facts}; the limit is {divergence.threshold:.2f}."


def check_labels(
    anomalies: anomalies_pb2.Anomalies, train: Statistics, schema: schema_pb2.Schema
) -> None:
    """Add an anomaly for labels of the schema without an image in the train split."""
    counts = count_values(train, LABEL)
    if counts is None:
        return
    domains = {domain.name: domain.value for domain in schema.string_domain}
    allowed: set[str] = set()
    for feature in schema.feature:
        if feature.name == LABEL:
            allowed |= {*domains.get(feature.domain, []), *feature.string_domain.value}
    if missing := sorted(allowed - counts.keys()):
        text = f"No image has {_name(missing)} of the schema."
        _add(anomalies, LABEL, _Info.CUSTOM_VALIDATION, "Missing labels", text)


def check_label_changes(
    anomalies: anomalies_pb2.Anomalies, train: Statistics, reference: Reference
) -> None:
    """Report labels that appeared or disappeared since the reference as drift."""
    now, before = (count_values(sample, LABEL) for sample in (train, reference.statistics))
    if now is None or before is None:
        return
    if new := sorted(now.keys() - before.keys()):
        images = sum(now[label] for label in new)
        text = f"{images:,} images have {_name(new)}, but none did {reference.name}."
        _add(anomalies, LABEL, _Info.COMPARATOR_CONTROL_DATA_MISSING, "New labels", text)
    if gone := sorted(before.keys() - now.keys()):
        images = sum(before[label] for label in gone)
        text = f"No image has {_name(gone)} anymore, but {images:,} did {reference.name}."
        _add(anomalies, LABEL, _Info.COMPARATOR_TREATMENT_DATA_MISSING, "Missing labels", text)


def check_images(
    anomalies: anomalies_pb2.Anomalies, statistics: Statistics, schema: schema_pb2.Schema
) -> None:
    """Add an anomaly if TFDV reports nothing because too few images have a known format."""
    encoded = find_feature(statistics, ENCODED)
    domains = (feature.image_domain for feature in schema.feature if feature.name == ENCODED)
    wanted = max((domain.minimum_supported_image_fraction for domain in domains), default=0.0)
    if encoded is None or wanted < _MIN_COUNTED_FRACTION:
        return
    counted = any(stat.name == "image_format_histogram" for stat in encoded.custom_stats)
    if not counted and encoded.bytes_stats.common_stats.num_non_missing >= _MIN_COUNTED:
        text = f"Fewer than {_MIN_COUNTED_FRACTION:.0%} are JPEG, PNG, GIF or BMP images."
        kind = _Info.LOW_SUPPORTED_IMAGE_FRACTION
        _add(anomalies, ENCODED, kind, "Low supported image fraction", text)


def _add(
    anomalies: anomalies_pb2.Anomalies, feature: str, kind: int, title: str, text: str
) -> None:
    """Add a reason of TFDV's type `kind` to the anomalies of a feature, as TFDV does."""
    info = anomalies.anomaly_info[feature]
    info.path.CopyFrom(path_pb2.Path(step=[feature]))
    info.severity = _Info.ERROR
    info.reason.add(type=kind, short_description=title, description=text)
    info.short_description = title if len(info.reason) == 1 else "Multiple errors"
    info.description = " ".join(reason.description for reason in info.reason)


def _name(labels: list[str]) -> str:
    """List the first few labels."""
    named = name_some(list(map(repr, labels)), _MAX_NAMED)
    return f"the label{'s' if len(labels) > 1 else ''} {named}"
