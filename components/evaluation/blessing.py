"""Why a model was blessed or not: TFMA's verdict in words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.writers import eval_config_writer

from components.evaluation.classification_metrics import ACCURACY, NAMES

CANDIDATE, BASELINE = "candidate", "baseline"

Slice = tuple[tuple[str, str], ...]
Metrics = Mapping[str, Mapping[str, float]]
"""Model, `CANDIDATE` or `BASELINE` → metric → value."""


def read_metrics(evaluation_uri: str) -> Iterator[tuple[Slice, Metrics]]:
    """Yield the numbers of every slice; `()` is the one of all examples."""
    for of_slice in tfma.load_metrics(evaluation_uri):
        found: dict[str, dict[str, float]] = {}
        for item in of_slice.metric_keys_and_values:
            if item.value.WhichOneof("type") == "double_value" and not item.key.is_diff:
                # TFMA names the model only where there are two.
                values = found.setdefault(item.key.model_name or CANDIDATE, {})
                values[item.key.name] = item.value.double_value.value
        yield _slice(of_slice.slice_key), found


def read_config(evaluation_uri: str) -> tfma.EvalConfig:
    """Read what was evaluated by; `tfma.load_eval_result` would read all metrics and plots too."""
    config, *_ = eval_config_writer.load_eval_run(evaluation_uri)
    return config


def explain_blessing(evaluation_uri: str, floor: float) -> tuple[str, ...]:
    """Say which thresholds decided, on which slices, and by how much.

    Args:
        evaluation_uri: of the Evaluator's output.
        floor: share of the most frequent class, 0 to 1.
    """
    result = tfma.load_validation_result(evaluation_uri)
    failed = {
        _slice(of_slice.slice_key): of_slice.failures
        for of_slice in result.metric_validations_per_slice
    }
    reasons: list[tuple[Slice, str]] = []
    overall: Metrics = {}
    for key, metrics in read_metrics(evaluation_uri):
        if not key:
            overall = metrics
        reasons += [(key, _explain_failure(f, key, metrics, floor)) for f in failed.get(key, ())]
    missing = [
        f"no image is in {_name(tuple(spec.feature_values.items()))}, which a threshold is for"
        for spec in result.missing_slices
    ]
    if reasons or missing:
        return (*(text for _, text in sorted(reasons)), *sorted(missing))
    return _explain_success(read_config(evaluation_uri), overall, floor)


def _slice(key: Any) -> Slice:
    return tuple((part.column, _text(part)) for part in key.single_slice_keys)


def _text(part: Any) -> str:
    value = getattr(part, part.WhichOneof("kind"))
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _name(key: Slice) -> str:
    return ", ".join(f"{column}={value}" for column, value in key)


def _explain_failure(failure: Any, key: Slice, metrics: Metrics, floor: float) -> str:
    name = failure.metric_key.name
    where = f" on {_name(key)}" if key else ""
    value = metrics[CANDIDATE].get(name, math.nan)
    subject = f"{NAMES.get(name, name)}{where}"
    if math.isnan(value):
        return f"{subject} is not defined, and a threshold is for it"
    if failure.metric_key.is_diff:
        behind = abs(failure.metric_value.double_value.value)
        allowed = abs(failure.metric_threshold.change_threshold.absolute.value)
        side = "below" if failure.metric_value.double_value.value < 0 else "above"
        return (
            f"{subject} {value:.3f} is {behind:.3f} {side} the model in use, more than {allowed:g}"
        )
    bounds = failure.metric_threshold.value_threshold
    if bounds.HasField("lower_bound") and value < bounds.lower_bound.value:
        bound = bounds.lower_bound.value
        why = _origin(name, key, bound, floor)
        return f"{subject} {value:.3f} is {bound - value:.3f} below {bound:.4g}, {why}"
    bound = bounds.upper_bound.value
    return f"{subject} {value:.3f} is {value - bound:.3f} above {bound:.4g}, its threshold"


def _origin(name: str, key: Slice, bound: float, floor: float) -> str:
    if name != ACCURACY or key:
        return "its threshold"
    # ML Metadata keeps six digits of the floor.
    at_floor = bound < floor or math.isclose(bound, floor, rel_tol=1e-5)
    return "the share of the most frequent class" if at_floor else "the least allowed"


def _explain_success(config: Any, overall: Metrics, floor: float) -> tuple[str, ...]:
    metrics = [metric for spec in config.metrics_specs for metric in spec.metrics]
    # The first one, see `components.evaluation.eval_config`.
    accuracy = metrics[0]
    bound = accuracy.per_slice_thresholds[0].threshold.value_threshold.lower_bound.value
    reasons = [
        f"accuracy {overall[CANDIDATE][ACCURACY]:.3f} reaches {bound:.4g}, "
        f"{_origin(ACCURACY, (), bound, floor)}"
    ]
    if others := sum(len(metric.per_slice_thresholds) for metric in metrics) - 1:
        reasons.append(f"{others} more threshold{' holds' if others == 1 else 's hold'}")
    reasons.append(
        f"the model in use has {overall[BASELINE][ACCURACY]:.3f}"
        if BASELINE in overall
        else "no model in use to compare with"
    )
    return tuple(reasons)


def describe_thresholds(config: Any) -> dict[str, str]:
    """Say what `config`, a `tfma.EvalConfig`, demands: metric and slice → bounds in words."""
    found: dict[str, str] = {}
    for metric in (metric for spec in config.metrics_specs for metric in spec.metrics):
        for bounds in metric.per_slice_thresholds:
            [where] = bounds.slicing_specs
            on = [*where.feature_keys, *(f"{k}={v}" for k, v in where.feature_values.items())]
            name = json.loads(metric.config)["name"] + (f" on {on[0]}" if on else "")
            words = _describe_bounds(bounds.threshold)
            found[name] = "; ".join([found[name], words] if name in found else [words])
    return found


def _describe_bounds(threshold: Any) -> str:
    words = []
    value, change = threshold.value_threshold, threshold.change_threshold
    if value.HasField("lower_bound"):
        words.append(f"at least {value.lower_bound.value:.4g}")
    if value.HasField("upper_bound"):
        words.append(f"at most {value.upper_bound.value:.4g}")
    if change.HasField("absolute"):
        words.append(f"at most {abs(change.absolute.value):.4g} behind the model in use")
    return ", ".join(words)
