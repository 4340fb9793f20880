from __future__ import annotations

import math

import pytest

from components.evaluation.blessing_text import (
    BASELINE,
    CANDIDATE,
    Bounds,
    Failure,
    describe_bounds,
    explain_failure,
    explain_success,
)

CAT = (("class", "cat"),)


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (
            Failure("accuracy", (), 0.3, Bounds(at_least=0.5)),
            "accuracy 0.300 is 0.200 below 0.5, the majority-class accuracy",
        ),
        (
            Failure("accuracy", (), 0.3, Bounds(at_least=0.6)),
            "accuracy 0.300 is 0.300 below 0.6, the least allowed",
        ),
        (
            Failure("accuracy", CAT, 0.3, Bounds(at_least=0.5)),
            "accuracy on class=cat 0.300 is 0.200 below 0.5, its threshold",
        ),
        (
            Failure("ece", (), 0.3, Bounds(at_most=0.1)),
            "calibration error 0.300 is 0.200 above 0.1, its threshold",
        ),
        (
            Failure("accuracy", (), 0.3, Bounds(at_least=0.2, max_worsening=0.01), change=-0.25),
            "accuracy 0.300 is 0.250 below the model in use, more than 0.01",
        ),
        (
            Failure("loss", (), 0.3, Bounds(max_worsening=0.01), change=0.25),
            "loss 0.300 is 0.250 above the model in use, more than 0.01",
        ),
        (
            Failure("auc", CAT, math.nan, Bounds(at_least=0.5)),
            "macro ROC AUC on class=cat is not defined, and a threshold is for it",
        ),
    ],
)
def test_failures_name_metric_slice_and_distance(failure: Failure, text: str) -> None:
    # ML Metadata keeps six digits of the majority-class accuracy.
    assert explain_failure(failure, 0.500001) == text


def test_a_blessing_names_the_bound_and_the_model_in_use() -> None:
    first = {CANDIDATE: {"accuracy": 0.8}}
    both = {**first, BASELINE: {"accuracy": 0.75}}
    least, majority = 0.333333, 1 / 3
    reached = "accuracy 0.800 reaches 0.3333, the majority-class accuracy"
    assert explain_success(both, least_accuracy=least, majority_accuracy=majority, others=0) == (
        reached,
        "the model in use has 0.750",
    )
    assert explain_success(first, least_accuracy=least, majority_accuracy=majority, others=2) == (
        reached,
        "2 more thresholds hold",
        "no model in use to compare with",
    )


def test_bounds_in_words() -> None:
    assert describe_bounds(Bounds(at_least=0.5)) == "at least 0.5"
    assert describe_bounds(Bounds(at_most=0.1, max_worsening=0)) == (
        "at most 0.1, at most 0 behind the model in use"
    )
