"""Reads from TFMA's files why a model meets or misses its thresholds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.writers import eval_config_writer

from components.evaluation.metrics.counts import OVERALL, SliceKey
from components.evaluation.threshold_text import (
    CANDIDATE,
    Bounds,
    Failure,
    ModelValues,
    describe_bounds,
    explain_failure,
    explain_success,
)


def read_metrics(evaluation_uri: str) -> Iterator[tuple[SliceKey, ModelValues]]:
    """Yield the metrics of every slice."""
    for of_slice in tfma.load_metrics(evaluation_uri):
        found: dict[str, dict[str, float]] = {}
        for item in of_slice.metric_keys_and_values:
            if item.value.WhichOneof("type") == "double_value" and not item.key.is_diff:
                # TFMA names the model only if there are two.
                values = found.setdefault(item.key.model_name or CANDIDATE, {})
                values[item.key.name] = item.value.double_value.value
        yield _slice(of_slice.slice_key), found


def read_config(evaluation_uri: str) -> config_pb2.EvalConfig:
    """Read the configuration of an evaluation, without its metrics and plots."""
    config, *_ = eval_config_writer.load_eval_run(evaluation_uri)
    return config


def explain_blessing(evaluation_uri: str, majority_accuracy: float) -> tuple[str, ...]:
    """Say which thresholds decided, on which slices, and by how much.

    Args:
        evaluation_uri: output folder of the Evaluator.
        majority_accuracy: accuracy of always predicting the most frequent class, 0 to 1.
    """
    result = tfma.load_validation_result(evaluation_uri)
    metrics = dict(read_metrics(evaluation_uri))
    failures = [
        _failure(failure, key := _slice(of_slice.slice_key), metrics[key])
        for of_slice in result.metric_validations_per_slice
        for failure in of_slice.failures
    ]
    missing = sorted(
        f"{slicing}={value} has a threshold but no images"
        for spec in result.missing_slices
        for slicing, value in spec.feature_values.items()
    )
    if failures or missing:
        texts = sorted((f.slice, explain_failure(f, majority_accuracy)) for f in failures)
        return (*(text for _, text in texts), *missing)
    thresholds = [of for _, of in _list_thresholds(read_config(evaluation_uri))]
    return explain_success(
        metrics[OVERALL],
        # The first one, see `components.evaluation.tfma.eval_config`.
        least_accuracy=thresholds[0].threshold.value_threshold.lower_bound.value,
        majority_accuracy=majority_accuracy,
        others=len(thresholds) - 1,
    )


def _failure(failure: Any, key: SliceKey, metrics: ModelValues) -> Failure:
    metric = failure.metric_key
    return Failure(
        metric=metric.name,
        slice=key,
        value=metrics[CANDIDATE].get(metric.name, math.nan),
        bounds=_bounds(failure.metric_threshold),
        change=failure.metric_value.double_value.value if metric.is_diff else None,
    )


def _bounds(threshold: Any) -> Bounds:
    value, change = threshold.value_threshold, threshold.change_threshold
    return Bounds(
        at_least=value.lower_bound.value if value.HasField("lower_bound") else None,
        at_most=value.upper_bound.value if value.HasField("upper_bound") else None,
        max_worsening=abs(change.absolute.value) if change.HasField("absolute") else None,
    )


def _slice(key: Any) -> SliceKey:
    """Return a slice; we make none of several features."""
    if not key.single_slice_keys:
        return OVERALL
    [part] = key.single_slice_keys
    value = getattr(part, part.WhichOneof("kind"))
    return part.column, value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _list_thresholds(config: Any) -> list[tuple[str, Any]]:
    """Return each threshold of a `tfma.EvalConfig` with the name of its metric, in order."""
    metrics = (metric for spec in config.metrics_specs for metric in spec.metrics)
    return [
        (json.loads(metric.config)["name"], threshold)
        for metric in metrics
        for threshold in metric.per_slice_thresholds
    ]


def describe_thresholds(config: Any) -> dict[str, str]:
    """Describe the thresholds of a `tfma.EvalConfig`: metric and slice → bounds in words."""
    found: dict[str, str] = {}
    for metric, threshold in _list_thresholds(config):
        [where] = threshold.slicing_specs
        on = [*where.feature_keys, *(f"{k}={v}" for k, v in where.feature_values.items())]
        name = metric + (f" on {on[0]}" if on else "")
        bounds = describe_bounds(_bounds(threshold.threshold))
        found[name] = f"{found[name]}; {bounds}" if name in found else bounds
    return found
