"""What TFDV does not check of image records: labels that come and go, and unreadable images."""

from __future__ import annotations

from typing import TypeAlias

from tensorflow_metadata.proto.v0 import anomalies_pb2, path_pb2, schema_pb2

from components.contract.example import ENCODED, LABEL
from components.validation.drift import Reference
from components.validation.statistics import Statistics, count_values, find_feature

_Info: TypeAlias = anomalies_pb2.AnomalyInfo

# TFDV counts the formats of the images only where there are this many, and this share of them
# can be decoded; else it says nothing at all.
_FEWEST_COUNTED = 100
_SMALLEST_COUNTED_SHARE = 0.8

_NAMED = 10


def check_labels(
    anomalies: anomalies_pb2.Anomalies, train: Statistics, schema: schema_pb2.Schema
) -> None:
    """Add an anomaly for labels of the schema of which the train split has no image."""
    counts = count_values(train, LABEL)
    if counts is None:
        return
    if missing := sorted(_allowed_labels(schema) - counts.keys()):
        add_reason(
            anomalies,
            LABEL,
            _Info.CUSTOM_VALIDATION,
            ("Missing labels", f"No image has {_label(missing)} of the schema."),
        )


def _allowed_labels(schema: schema_pb2.Schema) -> set[str]:
    domains = {domain.name: domain.value for domain in schema.string_domain}
    labels: set[str] = set()
    for feature in schema.feature:
        if feature.name == LABEL:
            labels |= {*domains.get(feature.domain, []), *feature.string_domain.value}
    return labels


def check_label_changes(
    anomalies: anomalies_pb2.Anomalies, train: Statistics, reference: Reference
) -> None:
    """Add what is drift: labels that the reference has not got, or that only it has got."""
    now, before = (count_values(sample, LABEL) for sample in (train, reference.statistics))
    if now is None or before is None:
        return
    if new := sorted(now.keys() - before.keys()):
        images = sum(now[label] for label in new)
        text = f"{images:,} images have {_label(new)}, {reference.name} none has."
        kind = _Info.COMPARATOR_CONTROL_DATA_MISSING
        add_reason(anomalies, LABEL, kind, ("New labels", text))
    if gone := sorted(before.keys() - now.keys()):
        images = sum(before[label] for label in gone)
        text = f"No image has {_label(gone)} any more, {reference.name} {images:,} have."
        kind = _Info.COMPARATOR_TREATMENT_DATA_MISSING
        add_reason(anomalies, LABEL, kind, ("Missing labels", text))


def check_images(
    anomalies: anomalies_pb2.Anomalies, statistics: Statistics, schema: schema_pb2.Schema
) -> None:
    """Add an anomaly where TFDV is silent because too few images can be decoded."""
    encoded = find_feature(statistics, ENCODED)
    wanted = max((_supported_fraction(feature) for feature in schema.feature), default=0.0)
    if encoded is None or wanted < _SMALLEST_COUNTED_SHARE:
        return
    counted = any(stat.name == "image_format_histogram" for stat in encoded.custom_stats)
    if not counted and encoded.bytes_stats.common_stats.num_non_missing >= _FEWEST_COUNTED:
        text = f"Less than {_SMALLEST_COUNTED_SHARE:.0%} are JPEG, PNG, GIF or BMP images."
        kind = _Info.LOW_SUPPORTED_IMAGE_FRACTION
        add_reason(anomalies, ENCODED, kind, ("Low supported image fraction", text))


def _supported_fraction(feature: schema_pb2.Feature) -> float:
    if feature.name != ENCODED:
        return 0.0
    return float(feature.image_domain.minimum_supported_image_fraction)


def add_reason(
    anomalies: anomalies_pb2.Anomalies,
    feature: str,
    kind: int,
    texts: tuple[str, str],
) -> None:
    """Add a reason to the anomalies of a feature, the way TFDV does.

    Args:
        anomalies: of a split.
        feature: its name.
        kind: TFDV's type of anomaly.
        texts: a title of a few words, and a sentence.
    """
    title, text = texts
    info = anomalies.anomaly_info[feature]
    info.path.CopyFrom(path_pb2.Path(step=[feature]))
    info.severity = _Info.ERROR
    info.reason.add(type=kind, short_description=title, description=text)
    info.short_description = title if len(info.reason) == 1 else "Multiple errors"
    info.description = " ".join(reason.description for reason in info.reason)


def _label(labels: list[str]) -> str:
    """Name the first few labels."""
    named = ", ".join(repr(label) for label in labels[:_NAMED])
    more = f" and {len(labels) - _NAMED:,} more" if len(labels) > _NAMED else ""
    return f"the label{'s' if len(labels) > 1 else ''} {named}{more}"
