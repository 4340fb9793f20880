"""Decides whether a model is good enough, or whether too few images can tell."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from components.contract.confidence import Interval, proportion_interval
from components.evaluation.config import EvaluationConfig
from components.evaluation.thresholds import ALONE, ROUNDING, UNKNOWN_LABELS, ThresholdCheck
from components.metrics.evaluation_files import Verdict
from components.metrics.predictions import Flags, Ints
from components.metrics.proof import (
    AccuracyChange,
    Grade,
    Relation,
    estimate_images_needed,
    grade,
    weakest,
)

_THIS, _IN_USE = "this model", "the model in use"


@dataclass(frozen=True)
class MeasuredAccuracy:
    """The accuracy of a model, and how certain it is."""

    images: int
    accuracy: float
    interval: Interval
    majority_accuracy: float
    """Accuracy of always predicting the most frequent class."""
    change: AccuracyChange | None = None
    """Against the model in use, on the images that can compare the two; None without any."""
    selected: bool = False
    """Whether the same images selected the weights."""
    partly: str = ""
    """Sentence on the images that are compared with the model in use, unless they are all."""
    alone: str = ALONE
    """Why there is no change."""

    @property
    def ending(self) -> str:
        """A sentence on what the model is compared with, unless it is the model in use, on all."""
        alone = f" {self.alone[0].upper()}{self.alone[1:]}."
        return self.partly if self.change else alone

    @property
    def may_be_guessing(self) -> bool:
        """Whether the model is only better than guessing by what may be chance."""
        return self.interval.low <= self.majority_accuracy <= self.accuracy


def measure_accuracy(
    right: Flags,
    baseline: Flags | None = None,
    *,
    guess: float,
    selected: bool = False,
    known: Ints | None = None,
) -> MeasuredAccuracy:
    """Measure the accuracy of a model, and compare it with the model in use if there is one.

    Args:
        right: whether the model is right, [examples].
        baseline: whether the model in use is right.
        guess: accuracy of always predicting the most frequent class.
        selected: whether these examples selected the weights.
        known: rows of the examples whose labels the model in use knows; None: all.
    """
    images, hits = len(right), int(right.sum())
    measured = MeasuredAccuracy(
        images, hits / images, proportion_interval(hits, images), guess, selected=selected
    )
    if baseline is None:
        return measured
    known = np.arange(images) if known is None else known
    if not len(known):
        return replace(measured, alone=UNKNOWN_LABELS)
    change = AccuracyChange.of(baseline[known], right[known])
    few = (
        f" Only {len(known):,} of {images:,} images are compared: both models know their labels, "
        "and neither was trained on them."
    )
    return replace(measured, change=change, partly=few if len(known) < images else "")


def decide(
    measured: MeasuredAccuracy,
    config: EvaluationConfig,
    check: ThresholdCheck,
    *,
    smoke_failure: str = "",
) -> Verdict:
    """Decide whether a model may be pushed.

    Thresholds are compared with measured values. The majority class and the model in use are
    compared with whole intervals, unless `evaluation.decide_by` is value.
    """
    reasons, max_drop = [*check.reasons, *_list_numbers(measured, config)], config.max_accuracy_drop
    level = _grade(measured, max_drop)
    if smoke_failure:
        headline = "Not blessed: the exported model failed its smoke test."
        return Verdict("refused", headline, [smoke_failure, *reasons], level)
    change, by_interval = measured.change, config.decide_by == "interval"
    relation = change.relate(max_drop) if change else "not worse"
    claim = change.tell(_IN_USE, _THIS, max_drop) if change else ""
    # The only threshold that is missed may be missed by chance.
    by_chance = change and change.difference < -max_drop - ROUNDING and len(check.reasons) == 1
    if not check.holds and not (by_interval and relation == "undecided" and by_chance):
        return Verdict("refused", _explain_refusal(measured, relation, claim), reasons, level)
    if not by_interval:
        doubt = f", though {claim}." if relation in ("worse", "undecided") else "."
        headline = f"Blessed: it meets every threshold{doubt}{measured.ending}"
        return Verdict("blessed", headline, reasons, level)
    if relation == "worse" and change and not change.is_within(max_drop):
        return Verdict("refused", f"Not blessed: {claim}.{measured.partly}", reasons, level)
    doubts = [claim] if relation == "undecided" else []
    if measured.may_be_guessing:
        few = f"{measured.images:,} images are too few"
        rest = (doubt.removeprefix(f"{few} ") for doubt in doubts)
        doubts = [f"{few} to show that {_THIS} is better than guessing", *rest]
    if doubts:
        headline = f"Not blessed: {' and '.join(doubts)}.{measured.partly}"
        return Verdict("undecided", headline, reasons, level)
    return Verdict("blessed", _explain_blessing(measured, claim), reasons, level)


def _explain_refusal(measured: MeasuredAccuracy, relation: Relation, claim: str) -> str:
    if measured.accuracy < measured.majority_accuracy:
        return "Not blessed: worse than always predicting the most frequent class."
    if relation == "worse":
        return f"Not blessed: {claim}.{measured.partly}"
    return f"Not blessed: {_THIS} misses a threshold."


def _explain_blessing(measured: MeasuredAccuracy, claim: str) -> str:
    if claim:
        return f"Blessed: {claim}.{measured.ending}"
    better = measured.interval.low > measured.majority_accuracy
    reason = f"{_THIS} is better than guessing" if better else "it meets every threshold"
    return f"Blessed: {reason}.{measured.ending}"


def _grade(measured: MeasuredAccuracy, max_drop: float) -> Grade:
    """Grade the weaker of two claims: better than guessing, and not worse than the model in use."""
    guess, selected = measured.majority_accuracy, measured.selected
    grades = [grade(measured.accuracy, measured.interval, guess, selected=selected)]
    if change := measured.change:
        of_change = change.difference, change.interval, -max_drop - ROUNDING
        grades.append(grade(*of_change, selected=selected))
    return weakest(grades)


def _list_numbers(measured: MeasuredAccuracy, config: EvaluationConfig) -> Iterator[str]:
    """Yield the intervals that decide, as clauses."""
    accuracy, interval, guess = measured.accuracy, measured.interval, measured.majority_accuracy
    if measured.may_be_guessing:
        spread = accuracy * (1 - accuracy)
        needed = estimate_images_needed(spread, accuracy - guess, measured.images)
        yield (
            f"the 95% confidence interval of the accuracy {accuracy:.3f}, {interval.low:.3f} to "
            f"{interval.high:.3f}, includes {guess:.3f}, the majority-class accuracy{needed}"
        )
    if measured.change:
        yield measured.change.explain(_IN_USE, _THIS, config.max_accuracy_drop)
