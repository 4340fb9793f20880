"""Which thresholds a model meets, and whether it may be pushed or too few images can tell."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from components.contract.confidence import Interval, proportion_interval
from components.evaluation.config import EvaluationConfig, Threshold
from components.evaluation.slice_counts import SliceValues
from components.metrics.evaluation_files import Outcome, Verdict
from components.metrics.metric_table import ACCURACY, METRICS
from components.metrics.predictions import OVERALL, Flags, Ints, SliceKey
from components.metrics.proof import AccuracyChange, estimate_images_needed, percent, weigh

_CURRENT = "the current model"
ALONE = "there is no current model to compare with"
UNKNOWN_LABELS = f"{_CURRENT} knows none of these labels"
ALL_LEARNED = f"{_CURRENT} was trained on all of these images"
"""Clauses: why a model is not compared with the current model."""

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
    """Whether that is a difference to the current model."""


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

    `compared` are the values of this model and of the current model on the images whose labels both
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
    least = config.min_accuracy
    equal = math.isclose(accuracy, least, abs_tol=ROUNDING)
    relation = "equals" if equal else f"{accuracy:.3f} is above"
    yield f"accuracy {relation} {_name_minimum(least, majority_accuracy)}"
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
        bound = _name_minimum(least, majority_accuracy if overall else None)
        text = f"{subject} {value:.3f} is {least - value:.3f} below {bound}"
        yield MissedThreshold(key, text, threshold, value, False)
    if most is not None and value > most + ROUNDING:
        text = f"{subject} {value:.3f} is {value - most:.3f} above its threshold ({most:.4g})"
        yield MissedThreshold(key, text, threshold, value, False)
    if worsening is None or change is None:
        return
    if (change if metric.lower_is_better else -change) > worsening + ROUNDING:
        side = "below" if change < 0 else "above"
        text = (
            f"{subject} is {abs(change):.3f} {side} that of {_CURRENT}; at most {worsening:g} is "
            f"allowed"
        )
        yield MissedThreshold(key, text, threshold, change, True)


def _name_minimum(least: float, majority_accuracy: float | None) -> str:
    """Name a lower bound; without `majority_accuracy`, it is not of the overall accuracy."""
    if majority_accuracy is None:
        return f"its threshold ({least:.4g})"
    if least <= majority_accuracy:
        return f"the majority-class baseline ({least:.3f})"
    return f"the required minimum ({least:.4g})"


def describe_thresholds(config: EvaluationConfig) -> dict[str, str]:
    """Describe the thresholds: metric and slice → bounds in words."""
    texts = {
        "at_least": "at least {:.4g}",
        "at_most": "at most {:.4g}",
        "max_worsening": "at most {:.4g} worse than the current model",
    }
    missed: dict[str, str] = {}
    for threshold in list_thresholds(config):
        name = threshold.metric + (f" on {threshold.slice}" if threshold.slice else "")
        values = ((text, getattr(threshold, bound)) for bound, text in texts.items())
        bounds = ", ".join(text.format(value) for text, value in values if value is not None)
        missed[name] = f"{missed[name]}; {bounds}" if name in missed else bounds
    return missed


@dataclass(frozen=True)
class MeasuredAccuracy:
    """The accuracy of a model, and how certain it is."""

    images: int
    accuracy: float
    interval: Interval
    majority_accuracy: float
    """Accuracy of always predicting the most frequent class."""
    change: AccuracyChange | None = None
    """Against the current model, on the images that can compare the two; None without any."""
    selected: str = ""
    """What the same images picked: the checkpoint, or the training; "" if neither."""
    partly: str = ""
    """Sentence on the images that are compared with the current model, unless they are all."""
    alone: str = ALONE
    """Why there is no change."""

    @property
    def text(self) -> str:
        """The accuracy in percent, its interval, and what always guessing would reach."""
        low, high = percent(self.interval.low), percent(self.interval.high)
        guess = percent(self.majority_accuracy)
        return f"Accuracy {percent(self.accuracy)} % ({low} to {high}), baseline {guess} %"

    @property
    def may_be_guessing(self) -> bool:
        """Whether the model is only better than guessing by what may be chance."""
        return self.interval.low <= self.majority_accuracy <= self.accuracy


def measure_accuracy(
    right: Flags,
    baseline: Flags | None = None,
    *,
    guess: float,
    selected: str = "",
    known: Ints | None = None,
    alone: str = UNKNOWN_LABELS,
) -> MeasuredAccuracy:
    """Measure the accuracy of a model, and compare it with the current model if there is one.

    Args:
        right: whether the model is right, [examples].
        baseline: whether the current model is right.
        guess: accuracy of always predicting the most frequent class.
        selected: what these examples picked: the checkpoint, or the training; "" if neither.
        known: rows of the examples that can judge the current model; None: all.
        alone: why there are none, if there are none.
    """
    images, hits = len(right), int(right.sum())
    measured = MeasuredAccuracy(
        images, hits / images, proportion_interval(hits, images), guess, selected=selected
    )
    if baseline is None:
        return measured
    known = np.arange(images) if known is None else known
    if not len(known):
        return replace(measured, alone=alone)
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

    Thresholds are compared with measured values. The majority class and the current model are
    compared with whole intervals, unless `evaluation.decide_by` is value.
    """
    max_drop, change = config.max_accuracy_drop, measured.change
    reasons = [*check.reasons, *_list_numbers(measured, config)]

    def judge(outcome: Outcome, *clauses: str) -> Verdict:
        why = f": {' and '.join(clauses)}" if clauses else ""
        headline = f"{measured.text}{why}.{measured.partly}"
        return Verdict(outcome, headline, reasons, _weigh(measured, max_drop))

    if smoke_failure:
        reasons = [smoke_failure, *reasons]
        return judge("refused", "the exported model failed its smoke test")
    relation = change.relate(max_drop) if change else "not worse"
    claim = change.tell(_CURRENT, max_drop) if change else ""
    # The only threshold that is missed may be missed by chance.
    by_chance = relation == "undecided" and change and change.difference < -max_drop - ROUNDING
    by_interval = config.decide_by == "interval"
    if not check.holds and not (by_interval and by_chance and len(check.reasons) == 1):
        return judge("refused", *_explain_refusal(measured, claim if relation == "worse" else ""))
    if not by_interval and measured.accuracy <= measured.majority_accuracy:
        return judge("refused", "no better than always predicting the most frequent class")
    doubts = _list_doubts(measured, claim if relation == "undecided" else "")
    if by_interval and relation == "worse" and change and not change.is_within(max_drop):
        return judge("refused", claim)
    if by_interval and doubts:
        return judge("undecided", *doubts)
    if doubts:
        return judge("blessed", f"{' and '.join(doubts)}, but evaluation.decide_by is value")
    return judge("blessed", *([claim] if claim else []))


def _explain_refusal(measured: MeasuredAccuracy, worse: str) -> Iterator[str]:
    if measured.accuracy < measured.majority_accuracy:
        yield "worse than always predicting the most frequent class"
    else:
        yield worse or "a threshold is missed"


def _list_doubts(measured: MeasuredAccuracy, undecided: str) -> list[str]:
    """List the claims that the images are too few for, or cannot tell."""
    few = f"{measured.images:,} images are too few"
    guessing = [f"{few} to show that it beats the baseline"] if measured.may_be_guessing else []
    # Both are said at once if they are of the same images.
    rest = undecided.removeprefix(f"{few} ") if guessing else undecided
    untold = [measured.alone] if measured.alone == ALL_LEARNED else []
    return [*guessing, *([rest] if rest else []), *untold]


def _weigh(measured: MeasuredAccuracy, max_drop: float) -> str:
    """Weigh two claims: better than guessing, and not worse than the current model."""
    claims = [(measured.accuracy, measured.interval, measured.majority_accuracy)]
    if change := measured.change:
        claims.append((change.difference, change.interval, -max_drop - ROUNDING))
    return weigh(claims, selected=measured.selected)


def _list_numbers(measured: MeasuredAccuracy, config: EvaluationConfig) -> Iterator[str]:
    """Yield the intervals that decide, as clauses."""
    accuracy, interval, guess = measured.accuracy, measured.interval, measured.majority_accuracy
    if measured.may_be_guessing:
        spread = accuracy * (1 - accuracy)
        needed = estimate_images_needed(spread, accuracy - guess, measured.images)
        yield (
            f"the 95% confidence interval of the accuracy {accuracy:.3f}, {interval.low:.3f} to "
            f"{interval.high:.3f}, includes the majority-class baseline ({guess:.3f}){needed}"
        )
    if measured.change:
        yield measured.change.explain("the current one", "this model", config.max_accuracy_drop)
