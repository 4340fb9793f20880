"""The verdict, and thresholds in words."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from components.evaluation.config import EvaluationConfig, Threshold
from components.evaluation.verdict import (
    UNKNOWN_LABELS,
    MeasuredAccuracy,
    ThresholdCheck,
    check_thresholds,
    decide,
    find_missed,
    measure_accuracy,
)
from components.metrics.evaluation_files import Verdict
from components.metrics.predictions import OVERALL


def measured(
    images: int, right: int, *, guess: float, gained: int | None = None, lost: int = 0
) -> MeasuredAccuracy:
    """The accuracy of a model that is right about the first images.

    Args:
        images: number of images.
        right: how many of them the model is right about.
        guess: majority-class accuracy.
        gained: images that only the model is right about; None: there is no current model.
        lost: images that only the current model is right about.
    """
    hits = np.arange(images) < right
    if gained is None:
        return measure_accuracy(hits, guess=guess)
    before = hits.copy()
    before[:gained] = False
    before[right : right + lost] = True
    return measure_accuracy(hits, before, guess=guess)


def verdict(accuracy: MeasuredAccuracy, *, holds: bool = True, **config: Any) -> Verdict:
    return decide(accuracy, EvaluationConfig(**config), ThresholdCheck(holds, ("why",)))


NONSENSE = measured(209, 23, guess=0.077)
AS_GOOD = measured(150, 120, guess=0.1, gained=8, lost=8)
NO_DROP = measured(167, 150, guess=0.1, gained=0, lost=0)
BETTER = measured(1000, 900, guess=0.1, gained=60, lost=20)
WORSE = measured(100, 80, guess=0.5, gained=0, lost=9)
FEW = "images are too few to compare it with the current model"
GUESSING = "images are too few to show that it beats the baseline"
MISSED, BY_VALUE = {"holds": False}, {"decide_by": "value"}
# The measured accuracy, settings, the outcome, and the headline without its first word.
VERDICTS: dict[str, tuple[MeasuredAccuracy, dict[str, Any], str, str]] = {
    "twenty classes of noise": (
        *(NONSENSE, {}, "undecided"),
        f"11 % (7.4 to 16), baseline 7.7 %: 209 {GUESSING}.",
    ),
    "a first model that has learned something": (
        *(measured(209, 60, guess=0.077), {}, "blessed"),
        "28.7 % (23 to 35.2), baseline 7.7 %.",
    ),
    "no mistake": (
        *(measured(180, 180, guess=0.11), {}, "blessed"),
        "100 % (97.9 to 100), baseline 11 %.",
    ),
    "hardly a mistake": (
        *(measured(9999, 9998, guess=0.5), {}, "blessed"),
        "99.9 % (99.9 to 99.9), baseline 50 %.",
    ),
    "better": (
        *(BETTER, {}, "blessed"),
        "90 % (88 to 91.7), baseline 10 %: better than the current model by 4 points (2.3 to 5.8).",
    ),
    "as good": (
        *(measured(1000, 900, guess=0.1, gained=20, lost=22), {}, "blessed"),
        "90 % (88 to 91.7), baseline 10 %: no worse than the current model (within 0.02).",
    ),
    "too few": (*(AS_GOOD, {}, "undecided"), f"80 % (72.9 to 85.6), baseline 10 %: 150 {FEW}."),
    "both doubts": (
        *(measured(20, 9, guess=0.4, gained=2, lost=2), {}, "undecided"),
        f"45 % (25.8 to 65.8), baseline 40 %: 20 {GUESSING} and to compare it with the current "
        "model.",
    ),
    "no drop allowed": (
        *(NO_DROP, {"max_accuracy_drop": 0.0}, "undecided"),
        f"89.8 % (84.3 to 93.5), baseline 10 %: 167 {FEW}.",
    ),
    "no disagreement on few images": (
        *(measured(188, 150, guess=0.1, gained=0, lost=0), {}, "undecided"),
        f"79.8 % (73.5 to 84.9), baseline 10 %: 188 {FEW}.",
    ),
    "worse than guessing": (
        *(measured(100, 40, guess=0.5), MISSED, "refused"),
        "40 % (30.9 to 49.8), baseline 50 %: worse than always predicting the most frequent class.",
    ),
    "worse than the current model": (
        *(WORSE, MISSED, "refused"),
        "80 % (71.1 to 86.7), baseline 50 %: worse than the current model by 9 points (4.8 to "
        "16.2).",
    ),
    "worse, perhaps by chance": (
        *(measured(33, 21, guess=0.3, gained=2, lost=4), MISSED, "undecided"),
        f"63.6 % (46.6 to 77.8), baseline 30 %: 33 {FEW}.",
    ),
    "worse by value, perhaps by chance": (
        *(measured(33, 21, guess=0.5, gained=2, lost=4), MISSED | BY_VALUE, "refused"),
        "63.6 % (46.6 to 77.8), baseline 50 %: a threshold is missed.",
    ),
    "by value": (
        *(NONSENSE, BY_VALUE, "blessed"),
        f"11 % (7.4 to 16), baseline 7.7 %: 209 {GUESSING}, but evaluation.decide_by is value.",
    ),
    "as good as guessing, by value": (
        *(measured(100, 50, guess=0.5), BY_VALUE, "refused"),
        "50 % (40.4 to 59.6), baseline 50 %: no better than always predicting the most frequent "
        "class.",
    ),
    "by value, against the current model": (
        *(AS_GOOD, BY_VALUE, "blessed"),
        f"80 % (72.9 to 85.6), baseline 10 %: 150 {FEW}, but evaluation.decide_by is value.",
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(name: str) -> None:
    accuracy, settings, outcome, headline = VERDICTS[name]
    decided = verdict(accuracy, **settings)
    assert (decided.outcome, decided.headline) == (outcome, f"Accuracy {headline}")
    assert decided.reasons[0] == "why"
    # Doubts are mentioned even if the measured values decide.
    doubts = outcome == "undecided" or "decide_by" in settings
    assert any("includes" in reason for reason in decided.reasons) == doubts
    assert any("the difference is" in reason for reason in decided.reasons) == (
        accuracy.change is not None
    )


def test_a_failed_smoke_test_refuses_any_model() -> None:
    check = ThresholdCheck(True, ("why",))
    decided = decide(BETTER, EvaluationConfig(), check, smoke_failure="broken")
    assert (decided.outcome, decided.reasons) == ("refused", ["broken", *verdict(BETTER).reasons])


def test_the_numbers_of_a_doubt() -> None:
    [_, first] = verdict(NONSENSE).reasons
    assert first == (
        "the 95% confidence interval of the accuracy 0.110, 0.074 to 0.160, includes the "
        "majority-class baseline (0.077); about 350 images would be enough to decide"
    )
    [_, change] = verdict(AS_GOOD).reasons
    assert change == (
        "accuracy on the same images: 0.800 for this model, 0.800 for the current one; the "
        "difference is +0.000, 95% confidence interval -0.057 to +0.057, which includes 0: it may "
        "be due to chance; about 1,100 images would be enough to decide"
    )
    [_, never] = verdict(NO_DROP, max_accuracy_drop=0.0).reasons
    assert "images would" not in never, "no number of images would be enough"


def test_the_number_of_images_needed_is_enough() -> None:
    [_, agreeing] = verdict(measured(150, 120, guess=0.1, gained=0)).reasons
    assert agreeing.endswith("; about 190 images would be enough to decide")
    assert verdict(measured(190, 152, guess=0.1, gained=0)).outcome == "blessed"
    # One percent more: the number follows from a simpler interval.
    images = 360
    assert verdict(measured(images, round(images * 23 / 209), guess=0.077)).outcome == "blessed"
    images = 1100
    eight = round(images * 8 / 150)
    decided = verdict(measured(images, round(images * 0.8), guess=0.1, gained=eight, lost=eight))
    assert decided.outcome == "blessed"


CAT = ("class", "cat")
RECALL = Threshold("accuracy", slice="class=cat", at_least=0.5)
BOTH = Threshold("accuracy", at_least=0.4, max_worsening=0.01)
BELOW, CHANGE = "below the majority-class baseline (0.400)", "0.250 below that of the current"
MISSES: list[tuple[Threshold, float, float | None, list[str]]] = [
    (Threshold("accuracy", at_least=0.6), 0.3, None, ["0.300 below the required minimum (0.6)"]),
    (RECALL, 0.3, None, ["accuracy on class=cat 0.300 is 0.200 below its threshold (0.5)"]),
    (Threshold("ece", at_most=0.1), 0.3, None, ["error 0.300 is 0.200 above its threshold (0.1)"]),
    (BOTH, 0.3, -0.25, [BELOW, CHANGE]),
    (Threshold("loss", max_worsening=0.01), 0.3, -0.25, []),
    (Threshold("accuracy", at_least=0.3, at_most=0.3, max_worsening=0.1), 0.3, -0.1, []),
    # In floating point these are slightly beyond the bounds.
    (Threshold("accuracy", max_worsening=0.02), 0.9, 0.9 - 0.92, []),
    (Threshold("accuracy", at_least=0.3, at_most=0.3), 0.1 + 0.2, None, []),
    (Threshold("auc", slice="class", at_least=0.5), math.nan, None, ["AUC on class=cat has a"]),
]


def test_a_threshold_that_is_just_met() -> None:
    config, values = EvaluationConfig(min_accuracy=1 / 3), {OVERALL: {"accuracy": 1 / 3}}
    met, _ = check_thresholds(config, values, None, majority_accuracy=1 / 3).reasons
    assert met == "accuracy equals the majority-class baseline (0.333)"


@pytest.mark.parametrize(("threshold", "value", "change", "texts"), MISSES)
def test_failures_name_metric_slice_and_distance(
    threshold: Threshold, value: float, change: float | None, texts: list[str]
) -> None:
    key = CAT if threshold.slice else OVERALL
    clauses = [missed.text for missed in find_missed(threshold, key, value, change, 0.5)]
    assert len(clauses) == len(texts)
    for said, text in zip(clauses, texts, strict=True):
        assert text in said


def test_thresholds_apply_to_their_slices() -> None:
    config = EvaluationConfig(
        min_accuracy=1 / 3,
        thresholds=[
            Threshold("accuracy", slice="class", at_least=0.5),
            Threshold("accuracy", slice="format=gif", at_least=0.1),
            Threshold("ece", slice="class=cat", at_most=0.1),
        ],
    )
    values = {"accuracy": 0.8, "ece": 0.05}
    candidate = {OVERALL: values, CAT: values, ("class", "dog"): {**values, "accuracy": 0.4}}
    check = check_thresholds(config, candidate, None, majority_accuracy=1 / 3)
    assert check == ThresholdCheck(
        False,
        (
            "accuracy on class=dog 0.400 is 0.100 below its threshold (0.5)",
            "format=gif has a threshold but no images",
        ),
    )
    candidate |= {("class", "dog"): values, ("format", "gif"): values}
    reached = "accuracy 0.800 is above the majority-class baseline (0.333)"
    check = check_thresholds(config, candidate, None, majority_accuracy=1 / 3)
    first = (reached, "3 more thresholds are met", "there is no current model to compare with")
    assert check == ThresholdCheck(True, first)
    in_use = {OVERALL: {**values, "accuracy": 0.75}}
    both = (candidate, in_use)
    check = check_thresholds(EvaluationConfig(), candidate, both, majority_accuracy=1 / 3)
    assert check.reasons[1:] == ()
    # The current model knows neither dogs nor GIFs: nothing has become worse.
    config = EvaluationConfig(thresholds=[Threshold("accuracy", slice="class", max_worsening=0)])
    known = ({OVERALL: values, CAT: values}, {OVERALL: values, CAT: values})
    assert check_thresholds(config, candidate, known, majority_accuracy=1 / 3).holds
    worse = ({OVERALL: values, CAT: values}, {OVERALL: values, CAT: {**values, "accuracy": 0.9}})
    assert not check_thresholds(config, candidate, worse, majority_accuracy=1 / 3).holds


@pytest.mark.parametrize(
    ("known", "headline"),
    [
        (
            900,
            "Accuracy 90 % (88 to 91.7), baseline 10 %: better than the current model by 12.9 "
            "points (10.9 to 15.2). Only 900 of 1,000 images are compared: both models know their "
            "labels, and neither was trained on them.",
        ),
        (0, "Accuracy 90 % (88 to 91.7), baseline 10 %."),
    ],
)
def test_only_images_whose_labels_both_models_know_are_compared(known: int, headline: str) -> None:
    """The current model is wrong about all others."""
    right = np.arange(1000) % 10 != 0
    before = right & (np.arange(1000) % 7 != 0) & (np.arange(1000) < known)
    accuracy = measure_accuracy(right, before, guess=0.1, known=np.arange(known))
    assert decide(accuracy, EvaluationConfig(), ThresholdCheck(True, ())).headline == headline
    assert accuracy.accuracy == 0.9
    if not known:
        assert accuracy.alone == UNKNOWN_LABELS
    if accuracy.change:
        assert (accuracy.change.after, accuracy.change.before) == (
            right[:900].mean(),
            before[:900].mean(),
        )


SELF_CHOSEN = measured(33, 24, guess=0.4545)
CHANCE = "Promising, but it could be chance"


@pytest.mark.parametrize(
    ("accuracy", "selected", "evidence"),
    [
        # Self-chosen images prove nothing, even if their interval is far from guessing.
        (SELF_CHOSEN, "the checkpoint", f"{CHANCE}: the same images picked the checkpoint."),
        (NONSENSE, "", f"{CHANCE}."),
        (measured(100, 40, guess=0.5), "", "No evidence of improvement."),
        (BETTER, "", "Significant at 95 %."),
        (AS_GOOD, "", f"{CHANCE}."),
        (WORSE, "", "No evidence of improvement."),
    ],
)
def test_only_what_the_interval_shows_is_significant(
    accuracy: MeasuredAccuracy, selected: str, evidence: str
) -> None:
    assert verdict(dataclasses.replace(accuracy, selected=selected)).evidence == evidence
