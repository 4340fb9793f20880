"""The verdict on a model: whether it is good enough, or whether too few images can tell.

It is written next to TFMA's files, with that on its small versions; the report reads it.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from components.evaluation.config import EvaluationConfig
from components.evaluation.metrics.intervals import (
    Interval,
    Z,
    paired_interval,
    proportion_interval,
)
from components.evaluation.metrics.predictions import Flags
from components.evaluation.thresholds import ROUNDING, ThresholdCheck
from components.storage.artifact_files import open_file, read_json

Outcome = Literal["blessed", "undecided", "refused"]

TOO_FEW = "there are too few images to tell which of {first} and {second} is better"
"""Clause about two models if the interval of their difference includes 0."""

_FILE, _THRESHOLDS_FILE, _LITE_FILE = "verdict.json", "thresholds.json", "lite.json"

_NOT_WORSE = "that it is not worse than the model in use"

# Nobody collects more than these.
_MOST_IMAGES = 10_000_000


@dataclass(frozen=True)
class Verdict:
    """The decision of the Evaluator, with its reasons."""

    outcome: Outcome
    """undecided: what was measured, good enough or worse than the model in use, may be due to
    chance."""
    headline: str
    """One sentence for readers of nothing else."""
    reasons: list[str]
    """Clauses: which threshold decided, on which slice, by how much."""


@dataclass(frozen=True)
class LiteResult:
    """A small version, measured on the images that the model is evaluated on."""

    kind: str
    """float16, dynamic or int8."""
    bytes: int = 0
    """Size of its file."""
    accuracy: float = 0.0
    drop: float = 0.0
    """Accuracy of the model minus that of this version."""
    agreement: float = 0.0
    """Fraction of the images, 0 to 1, for which it predicts the same class as the model."""
    images_per_second: float = 0.0
    """One image at a time, on one core."""
    reason: str = ""
    """Why it is not pushed; "" if it is, with the model."""


@dataclass(frozen=True)
class MeasuredAccuracy:
    """The accuracy of a model, and how certain it is."""

    images: int
    accuracy: float
    interval: Interval
    majority_accuracy: float
    """Accuracy of always predicting the most frequent class."""
    change: float | None = None
    """Accuracy minus that of the model in use, on the same images; None without one."""
    change_interval: Interval | None = None
    disagreement: float = 0.0
    """Fraction of the images that exactly one of the two models is right about."""


def measure_accuracy(
    right: Flags, baseline: Flags | None = None, *, guess: float
) -> MeasuredAccuracy:
    """Measure the accuracy of a model, and compare it with the model in use if there is one.

    Args:
        right: whether the model is right, [examples].
        baseline: whether the model in use is right.
        guess: accuracy of always predicting the most frequent class.
    """
    images, hits = len(right), int(right.sum())
    measured = MeasuredAccuracy(images, hits / images, proportion_interval(hits, images), guess)
    if baseline is None:
        return measured
    return replace(
        measured,
        change=(hits - int(baseline.sum())) / images,
        change_interval=paired_interval(right, baseline),
        disagreement=float((right != baseline).mean()),
    )


def decide(
    measured: MeasuredAccuracy,
    config: EvaluationConfig,
    check: ThresholdCheck,
    *,
    smoke_failure: str = "",
) -> Verdict:
    """Decide whether a model may be pushed.

    The comparison with the model in use is a test of non-inferiority: the whole interval of the
    difference has to lie above the largest drop allowed (Piaggio et al. 2012, "Reporting of
    Noninferiority and Equivalence Randomized Trials").
    """
    max_drop = config.max_accuracy_drop
    doubts = _find_doubts(measured, max_drop)
    reasons = [*check.reasons, *(doubt for _, doubt in doubts)]
    if smoke_failure:
        headline = "Not blessed: the exported model failed its smoke test."
        return Verdict("refused", headline, [smoke_failure, *reasons])
    by_interval = config.decide_by == "interval"
    if not check.holds:
        # The only threshold that is missed may be missed by chance.
        if by_interval and len(check.reasons) == 1 and _NOT_WORSE in dict(doubts):
            clause = TOO_FEW.format(first="this model", second="the model in use")
            return Verdict("undecided", f"Not blessed: {clause}.", reasons)
        return Verdict("refused", _explain_refusal(measured), reasons)
    if doubts and by_interval:
        claims = " and ".join(claim for claim, _ in doubts)
        headline = f"Not blessed: {measured.images:,} images are too few to show {claims}."
        return Verdict("undecided", headline, reasons)
    return Verdict("blessed", _explain_blessing(measured, max_drop), reasons)


def _explain_refusal(measured: MeasuredAccuracy) -> str:
    if measured.accuracy < measured.majority_accuracy:
        return "Not blessed: worse than always predicting the most frequent class."
    if measured.change is not None:
        return "Not blessed: this model does not replace the model in use."
    return "Not blessed: this model misses a threshold."


def _explain_blessing(measured: MeasuredAccuracy, max_drop: float) -> str:
    change = measured.change_interval
    if change is None:
        better = measured.interval.low > measured.majority_accuracy
        reason = "better than guessing" if better else "it meets every threshold"
        return f"Blessed: {reason}. There is no model in use to compare with."
    if change.low > 0:
        return "Blessed: better than the model in use."
    if change.low > -max_drop:
        return f"Blessed: at most {max_drop:g} less accurate than the model in use."
    return "Blessed: it meets every threshold."


def _find_doubts(measured: MeasuredAccuracy, max_drop: float) -> list[tuple[str, str]]:
    """Return each claim that the images cannot support, and its numbers."""
    found = []
    accuracy, interval, guess = measured.accuracy, measured.interval, measured.majority_accuracy
    if interval.low <= guess <= accuracy:
        spread = accuracy * (1 - accuracy)
        needed = estimate_images_needed(spread, accuracy - guess, measured.images)
        found.append(
            (
                "that it is better than guessing",
                f"the 95% confidence interval of the accuracy {accuracy:.3f}, {interval.low:.3f} "
                f"to {interval.high:.3f}, includes {guess:.3f}, the majority-class accuracy"
                f"{needed}",
            )
        )
    change, ends = measured.change, measured.change_interval
    if change is None or ends is None:
        return found
    claim = f"at most {max_drop:g} less accurate than" if max_drop else "as accurate as"
    claim, bound = f"that it is {claim} the model in use", -max_drop
    if change < bound - ROUNDING:
        claim, bound = _NOT_WORSE, 0.0
    if bound in ends:
        spread = measured.disagreement - change**2
        needed = estimate_images_needed(spread, abs(change - bound), measured.images)
        found.append(
            (
                claim,
                f"the 95% confidence interval of the difference to the model in use, "
                f"{ends.low:+.3f} to {ends.high:+.3f}, includes {bound or 0:g}{needed}",
            )
        )
    return found


def estimate_images_needed(spread: float, distance: float, images: int) -> str:
    """Say how many images would decide if the value stayed the same; "" if that is unknown.

    `spread` is the variance of a single image, `distance` that of the mean from the bound.
    """
    if distance <= 0 or spread <= 0:
        return ""
    needed = Z**2 * spread / distance**2
    if not images < needed < _MOST_IMAGES:
        return ""
    digits = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return f"; about {math.ceil(needed / digits) * digits:,} images would be enough to decide"


def write_verdict(evaluation_uri: str, verdict: Verdict) -> None:
    """Write the verdict into an evaluation."""
    _write(asdict(verdict), evaluation_uri, _FILE)


def read_verdict(evaluation_uri: str) -> Verdict:
    """Read the verdict of an evaluation."""
    return Verdict(**read_json(os.path.join(evaluation_uri, _FILE)))


def write_thresholds(evaluation_uri: str, thresholds: Mapping[str, str]) -> None:
    """Write the thresholds of an evaluation: metric and slice → bounds in words."""
    _write(dict(thresholds), evaluation_uri, _THRESHOLDS_FILE)


def read_thresholds(evaluation_uri: str) -> dict[str, str]:
    """Read the thresholds of an evaluation."""
    return dict(read_json(os.path.join(evaluation_uri, _THRESHOLDS_FILE)))


def write_lite_results(evaluation_uri: str, results: Sequence[LiteResult]) -> None:
    """Write the results of the small versions into an evaluation."""
    _write([asdict(result) for result in results], evaluation_uri, _LITE_FILE)


def read_lite_results(evaluation_uri: str) -> tuple[LiteResult, ...]:
    """Read the results of the small versions; none if there are no such versions."""
    try:
        found = read_json(os.path.join(evaluation_uri, _LITE_FILE))
    except FileNotFoundError:
        return ()
    return tuple(LiteResult(**fields) for fields in found)


def _write(facts: Any, folder: str, name: str) -> None:
    with open_file(os.path.join(folder, name), "w") as file:
        file.write(json.dumps(facts, indent=1) + "\n")
