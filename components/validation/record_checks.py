"""Check image records beyond TFDV: new and missing labels, and undecodable images."""

from __future__ import annotations

from typing import TypeAlias

from tensorflow_metadata.proto.v0 import anomalies_pb2, path_pb2, schema_pb2

from components.contract.example import ENCODED, LABEL
from components.validation.drift import Reference
from components.validation.feature_statistics import Statistics, count_values, find_feature

_Info: TypeAlias = anomalies_pb2.AnomalyInfo

# TFDV counts image formats only if there are this many images, and if it knows the format of this
# fraction of them. Otherwise it reports nothing.
_MIN_COUNTED = 100
_MIN_COUNTED_FRACTION = 0.8

_MAX_NAMED = 10


def check_labels(
    anomalies: anomalies_pb2.Anomalies, train: Statistics, schema: schema_pb2.Schema
) -> None:
    """Add an anomaly for labels of the schema without an image in the train split."""
    counts = count_values(train, LABEL)
    if counts is None:
        return
    if missing := sorted(_allowed_labels(schema) - counts.keys()):
        text = f"No image has {_name(missing)} of the schema."
        _add(anomalies, LABEL, _Info.CUSTOM_VALIDATION, "Missing labels", text)


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
    wanted = max(
        (
            feature.image_domain.minimum_supported_image_fraction
            for feature in schema.feature
            if feature.name == ENCODED
        ),
        default=0.0,
    )
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
    named = ", ".join(repr(label) for label in labels[:_MAX_NAMED])
    more = f" and {len(labels) - _MAX_NAMED:,} more" if len(labels) > _MAX_NAMED else ""
    return f"the label{'s' if len(labels) > 1 else ''} {named}{more}"
