"""The thresholds of a model: which it meets, which it misses, and by how much, in words."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from components.evaluation.config import EvaluationConfig, Threshold
from components.evaluation.slice_counts import SliceValues
from components.metrics.metric_table import ACCURACY, METRICS
from components.metrics.predictions import OVERALL, SliceKey

ALONE = "there is no model in use to compare with"
UNKNOWN_LABELS = "the model in use knows none of these labels"
"""Clauses: why a model is not compared with the model in use."""

ROUNDING = 1e-9
"""Tolerance of bounds: 0.9 - 0.92 is slightly less than -0.02 in floating point."""


class MissedThreshold(NamedTuple):
    """A threshold that a model misses on a slice."""

    key: SliceKey
    text: str
    """By how much, as a clause."""
    threshold: Threshold
    value: float
    """What was measured."""
    is_change: bool
    """Whether that is a difference to the model in use."""


@dataclass(frozen=True)
class ThresholdCheck:
    """Whether a model meets all thresholds, and why."""

    holds: bool
    reasons: tuple[str, ...]
    """Clauses: the thresholds that are missed, or those that are met."""
    missed: tuple[MissedThreshold, ...] = field(default=(), compare=False)
    matches: tuple[tuple[Threshold, int], ...] = field(default=(), compare=False)
    """Each threshold, and the number of slices that it applies to."""


def list_thresholds(config: EvaluationConfig) -> list[Threshold]:
    """Return all thresholds, those of the overall accuracy first."""
    accuracy = Threshold(
        "accuracy", at_least=config.min_accuracy, max_worsening=config.max_accuracy_drop
    )
    return [accuracy, *config.thresholds]


def check_thresholds(
    config: EvaluationConfig,
    candidate: SliceValues,
    compared: tuple[SliceValues, SliceValues] | None,
    *,
    majority_accuracy: float,
    alone: str = ALONE,
) -> ThresholdCheck:
    """Compare the metrics of a model with its thresholds, as TFMA does.

    `compared` are the values of this model and of the model in use on the images whose labels both
    know; None: there are none, for the reason `alone`.
    """
    missed: list[MissedThreshold] = []
    matches = []
    for threshold in list_thresholds(config):
        keys = [key for key in candidate if _applies(threshold, key)]
        matches.append((threshold, len(keys)))
        for key in keys:
            change = None
            if compared and key in compared[1]:
                ours, theirs = (model[key][threshold.metric] for model in compared)
                change = ours - theirs
            value = candidate[key][threshold.metric]
            missed += find_missed(threshold, key, value, change, majority_accuracy)
    texts = sorted({(miss.key, miss.text) for miss in missed})
    empty = {
        f"{threshold.slice} has a threshold but no images"
        for threshold, slices in matches
        if not slices
    }
    if texts or empty:
        reasons = (*(text for _, text in texts), *sorted(empty))
        return ThresholdCheck(False, reasons, tuple(missed), tuple(matches))
    met = _list_met(config, candidate[OVERALL][ACCURACY], majority_accuracy)
    reasons = (*met, *(() if compared else (alone,)))
    return ThresholdCheck(True, reasons, matches=tuple(matches))


def _list_met(config: EvaluationConfig, accuracy: float, majority_accuracy: float) -> Iterator[str]:
    yield (
        f"accuracy {accuracy:.3f} reaches {config.min_accuracy:.4g}, "
        f"{_name_minimum(config.min_accuracy, majority_accuracy)}"
    )
    if others := len(config.thresholds):
        yield f"{others} more threshold{' is' if others == 1 else 's are'} met"


def _applies(threshold: Threshold, key: SliceKey) -> bool:
    if "=" in threshold.slice:
        return threshold.slice == "=".join(key)
    return key[0] == threshold.slice


def find_missed(
    threshold: Threshold,
    key: SliceKey,
    value: float,
    change: float | None,
    majority_accuracy: float,
) -> Iterator[MissedThreshold]:
    """Yield the bounds that a metric misses on a slice, with a clause that says by how much."""
    least, most, worsening = threshold.at_least, threshold.at_most, threshold.max_worsening
    metric = METRICS[threshold.metric]
    subject = metric.text if key == OVERALL else f"{metric.text} on {'='.join(key)}"
    bounded = least is not None or most is not None
    if (bounded and math.isnan(value)) or (worsening is not None and math.isnan(change or 0)):
        undefined = f"{subject} has a threshold but is not defined"
        yield MissedThreshold(key, undefined, threshold, math.nan, not math.isnan(value))
        return
    if least is not None and value < least - ROUNDING:
        overall = threshold.metric == ACCURACY and key == OVERALL
        bound = _name_minimum(least, majority_accuracy) if overall else "its threshold"
        text = f"{subject} {value:.3f} is {least - value:.3f} below {least:.4g}, {bound}"
        yield MissedThreshold(key, text, threshold, value, False)
    if most is not None and value > most + ROUNDING:
        text = f"{subject} {value:.3f} is {value - most:.3f} above {most:.4g}, its threshold"
        yield MissedThreshold(key, text, threshold, value, False)
    if worsening is None or change is None:
        return
    if (change if metric.lower_is_better else -change) > worsening + ROUNDING:
        side = "below" if change < 0 else "above"
        text = (
            f"{subject} is {abs(change):.3f} {side} that of the model in use; at most "
            f"{worsening:g} is allowed"
        )
        yield MissedThreshold(key, text, threshold, change, True)


def _name_minimum(least_accuracy: float, majority_accuracy: float) -> str:
    is_majority = least_accuracy <= majority_accuracy
    return "the majority-class accuracy" if is_majority else "the required minimum"


def describe_thresholds(config: EvaluationConfig) -> dict[str, str]:
    """Describe the thresholds: metric and slice → bounds in words."""
    texts = {
        "at_least": "at least {:.4g}",
        "at_most": "at most {:.4g}",
        "max_worsening": "at most {:.4g} worse than the model in use",
    }
    found: dict[str, str] = {}
    for threshold in list_thresholds(config):
        name = threshold.metric + (f" on {threshold.slice}" if threshold.slice else "")
        values = ((text, getattr(threshold, bound)) for bound, text in texts.items())
        bounds = ", ".join(text.format(value) for text, value in values if value is not None)
        found[name] = f"{found[name]}; {bounds}" if name in found else bounds
    return found
