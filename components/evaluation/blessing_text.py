"""Why a model was blessed or not, and what its thresholds demand, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from components.evaluation.metrics.classification_metrics import ACCURACY, NAMES

CANDIDATE, BASELINE = "candidate", "baseline"

Slice = tuple[tuple[str, str], ...]
"""Feature and value; `()` is the slice of all examples."""

Metrics = Mapping[str, Mapping[str, float]]
"""Model, `CANDIDATE` or `BASELINE` → metric → value."""


class Bounds(NamedTuple):
    """What a threshold demands of a metric; None where it demands nothing."""

    at_least: float | None = None
    at_most: float | None = None
    max_worsening: float | None = None


class Failure(NamedTuple):
    """A metric of the candidate that does not meet its threshold."""

    metric: str
    where: Slice
    value: float
    """NaN where the metric is not defined."""
    bounds: Bounds
    change: float | None = None
    """Candidate less the model in use, if this is what failed."""


def name_slice(where: Slice) -> str:
    """Name a slice that is not the one of all examples."""
    return ", ".join(f"{column}={value}" for column, value in where)


def explain_failure(failure: Failure, majority_accuracy: float) -> str:
    """Say which bound a metric misses, on which slice, and by how much."""
    name, where, value, bounds, change = failure
    subject = f"{NAMES.get(name, name)}{f' on {name_slice(where)}' if where else ''}"
    if math.isnan(value):
        return f"{subject} is not defined, and a threshold is for it"
    if change is not None:
        side = "below" if change < 0 else "above"
        return (
            f"{subject} {value:.3f} is {abs(change):.3f} {side} the model in use, more than "
            f"{bounds.max_worsening:g}"
        )
    if bounds.at_least is not None and value < bounds.at_least:
        overall = name == ACCURACY and not where
        origin = _origin(bounds.at_least, majority_accuracy) if overall else "its threshold"
        missing = bounds.at_least - value
        return f"{subject} {value:.3f} is {missing:.3f} below {bounds.at_least:.4g}, {origin}"
    most = bounds.at_most if bounds.at_most is not None else math.nan
    return f"{subject} {value:.3f} is {value - most:.3f} above {most:.4g}, its threshold"


def _origin(least_accuracy: float, majority_accuracy: float) -> str:
    # ML Metadata keeps six digits of the majority-class accuracy.
    is_majority = least_accuracy < majority_accuracy or math.isclose(
        least_accuracy, majority_accuracy, rel_tol=1e-5
    )
    return "the majority-class accuracy" if is_majority else "the least allowed"


def explain_success(
    overall: Metrics, *, least_accuracy: float, majority_accuracy: float, others: int
) -> tuple[str, ...]:
    """Say which bounds hold.

    Args:
        overall: metrics on all examples.
        least_accuracy: lowest accuracy on all examples of a model that is blessed, 0 to 1.
        majority_accuracy: accuracy of always answering with the most frequent class, 0 to 1.
        others: number of the other thresholds.
    """
    reasons = [
        f"accuracy {overall[CANDIDATE][ACCURACY]:.3f} reaches {least_accuracy:.4g}, "
        f"{_origin(least_accuracy, majority_accuracy)}"
    ]
    if others:
        reasons.append(f"{others} more threshold{' holds' if others == 1 else 's hold'}")
    if BASELINE in overall:
        reasons.append(f"the model in use has {overall[BASELINE][ACCURACY]:.3f}")
    else:
        reasons.append("no model in use to compare with")
    return tuple(reasons)


def describe_bounds(bounds: Bounds) -> str:
    """Say what `bounds` demand."""
    texts = ("at least {:.4g}", "at most {:.4g}", "at most {:.4g} behind the model in use")
    pairs = zip(texts, bounds, strict=True)
    return ", ".join(text.format(bound) for text, bound in pairs if bound is not None)
