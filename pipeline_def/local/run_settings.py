"""The properties of a node's execution, under the names that a user sets them by."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

CODE = "code of "
"""Begins the name of the digest of a node's source files."""

# What a driver finds out is no choice, and a cached execution does not have it; `code` is the
# digest of all files, where each node tells that of its own.
_IGNORED = frozenset(
    {"span", "version", "input_fingerprint", "found_baseline", "found_statistics", "code"}
)

# Properties that hold sections of the configuration, or the fields of one.
_SECTIONS = {"custom_config": "", "ingest": "ingest", "limits": "validation"}

_NAMES = {
    "input_base": "data",
    "curated_schema": "validation.schema",
    "drift": "validation.drift",
    "on_anomalies": "validation.anomalies",
    "on_drift": "validation.drift",
}

_BOUNDS = {"value_threshold.lower_bound": "at_least", "value_threshold.upper_bound": "at_most"}
_WORSENING = "change_threshold.absolute"


def name_settings(node: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return name → value: `training.epochs`, `code of Trainer`, or `<node>.<property>`.

    Args:
        node: its name.
        properties: as ML Metadata has them; configuration is JSON.
    """
    settings: dict[str, Any] = {}
    for name, value in properties.items():
        if name == "code_digest":
            settings[f"{CODE}{node}"] = value
        elif name not in _IGNORED:
            found = _parse(value)
            if name == "eval_config" and isinstance(found, dict):
                settings.update(_name_evaluation(found))
                continue
            known = _SECTIONS if isinstance(found, dict) else _NAMES
            prefix = known.get(name, f"{node}.{name}")
            settings.update(_flatten(prefix, found))
    return dict(sorted(settings.items()))


def _parse(value: Any) -> Any:
    """Return what a text says if it is JSON, else the text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        value = {str(place): item for place, item in enumerate(value)}
    if not isinstance(value, dict) or not value:
        yield prefix, value
        return
    for name, item in value.items():
        yield from _flatten(f"{prefix}.{name}" if prefix else name, item)


def _name_evaluation(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Turn TFMA's configuration back into the one that `evaluation.make_eval_config` is given."""
    slicings = [spec.get("feature_keys", []) for spec in config.get("slicing_specs", ())]
    yield "evaluation.slices", [name for keys in slicings for name in keys]
    for specs in config.get("metrics_specs", ()):
        for metric in specs.get("metrics", ()):
            name = _parse(metric.get("config", "{}")).get("name", metric.get("class_name", ""))
            for place, threshold in enumerate(metric.get("per_slice_thresholds", ())):
                yield from _name_threshold(name, threshold, first=place == 0)


def _name_threshold(
    metric: str, threshold: Mapping[str, Any], *, first: bool
) -> Iterator[tuple[str, Any]]:
    slices = [_name_slice(spec) for spec in threshold.get("slicing_specs", ())]
    where = f" on {', '.join(slices)}" if any(slices) else ""
    found = dict(_flatten("", threshold.get("threshold", {})))
    if metric == "accuracy" and first and not where:
        yield "evaluation.min_accuracy", found.get("value_threshold.lower_bound")
        yield "evaluation.max_accuracy_drop", abs(found.get(_WORSENING, 0.0))
        return
    for path, name in _BOUNDS.items():
        if path in found:
            yield f"evaluation.thresholds.{metric}{where}.{name}", found[path]
    if _WORSENING in found:
        yield f"evaluation.thresholds.{metric}{where}.max_worsening", abs(found[_WORSENING])


def _name_slice(spec: Mapping[str, Any]) -> str:
    values = [f"{name}={value}" for name, value in spec.get("feature_values", {}).items()]
    return ", ".join([*spec.get("feature_keys", ()), *values])
