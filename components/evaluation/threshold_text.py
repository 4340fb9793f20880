"""Thresholds in words: their bounds, and why a model meets or misses them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from components.evaluation.metrics.counts import OVERALL, SliceKey
from components.evaluation.metrics.metric_table import ACCURACY, METRICS

CANDIDATE, BASELINE = "candidate", "baseline"

ModelValues = Mapping[str, Mapping[str, float]]
"""Model, `CANDIDATE` or `BASELINE` → metric → value."""


class Bounds(NamedTuple):
    """The bounds of a threshold; None for those it does not set."""

    at_least: float | None = None
    at_most: float | None = None
    max_worsening: float | None = None


class Failure(NamedTuple):
    """A metric of the candidate that misses its threshold."""

    metric: str
    slice: SliceKey
    value: float
    """NaN if the metric is not defined."""
    bounds: Bounds
    change: float | None = None
    """Candidate minus the model in use, if this is what failed."""


def explain_failure(failure: Failure, majority_accuracy: float) -> str:
    """Say which bound a metric misses, on which slice, and by how much."""
    name, key, value, bounds, change = failure
    on_slice = "" if key == OVERALL else f" on {'='.join(key)}"
    subject = f"{METRICS[name].text}{on_slice}"
    if math.isnan(value):
        return f"{subject} has a threshold but is not defined"
    if change is not None:
        side = "below" if change < 0 else "above"
        return (
            f"{subject} {value:.3f} is {abs(change):.3f} {side} the model in use; at most "
            f"{bounds.max_worsening:g} is allowed"
        )
    if bounds.at_least is not None and value < bounds.at_least:
        overall = name == ACCURACY and key == OVERALL
        bound = _name_bound(bounds.at_least, majority_accuracy) if overall else "its threshold"
        missing = bounds.at_least - value
        return f"{subject} {value:.3f} is {missing:.3f} below {bounds.at_least:.4g}, {bound}"
    most = bounds.at_most if bounds.at_most is not None else math.nan
    return f"{subject} {value:.3f} is {value - most:.3f} above {most:.4g}, its threshold"


def _name_bound(least_accuracy: float, majority_accuracy: float) -> str:
    # ML Metadata keeps six digits of the majority-class accuracy.
    is_majority = least_accuracy < majority_accuracy or math.isclose(
        least_accuracy, majority_accuracy, rel_tol=1e-5
    )
    return "the majority-class accuracy" if is_majority else "the required minimum"


def explain_success(
    overall: ModelValues, *, least_accuracy: float, majority_accuracy: float, others: int
) -> tuple[str, ...]:
    """Say which thresholds are met.

    Args:
        overall: metrics on all examples.
        least_accuracy: required minimum of the accuracy on all examples, 0 to 1.
        majority_accuracy: accuracy of always predicting the most frequent class, 0 to 1.
        others: number of the other thresholds.
    """
    reasons = [
        f"accuracy {overall[CANDIDATE][ACCURACY]:.3f} reaches {least_accuracy:.4g}, "
        f"{_name_bound(least_accuracy, majority_accuracy)}"
    ]
    if others:
        reasons.append(f"{others} more threshold{' is' if others == 1 else 's are'} met")
    if BASELINE in overall:
        reasons.append(f"the accuracy of the model in use is {overall[BASELINE][ACCURACY]:.3f}")
    else:
        reasons.append("there is no model in use to compare with")
    return tuple(reasons)


def describe_bounds(bounds: Bounds) -> str:
    """Describe the bounds of a threshold."""
    texts = ("at least {:.4g}", "at most {:.4g}", "at most {:.4g} worse than the model in use")
    pairs = zip(texts, bounds, strict=True)
    return ", ".join(text.format(bound) for text, bound in pairs if bound is not None)
