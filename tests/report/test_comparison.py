"""Comparison of two runs: pairs, outcome and page."""

from typing import Any

import numpy as np
import pytest

from components.metrics.intervals import paired_interval
from components.report.comparison import EvaluatedRun, render_comparison
from tests.report.conftest import words
from tests.report.samples.comparison_sample import answer, compare, draw_answers

pytestmark = pytest.mark.usefixtures("few_resamples", "undrawn")


PETS = ("cat", "dog")


def pets(truth: str, said: str, keys: str, sure: list[float] | None = None) -> EvaluatedRun:
    """Each letter is an image: c or d, and its content."""
    names = {"c": "cat", "d": "dog"}
    spelt = [[names[letter] for letter in letters] for letters in (truth, said)]
    return answer(*spelt, labels=PETS, keys=list(keys), sure=sure)


# Labels and contents of the first and the second run, pairs of rows, and number of new labels.
PAIRS = {
    "the same images": ("cd", "12", "cd", "12", {(0, 0), (1, 1)}, 0),
    "in another order": ("cd", "12", "dc", "21", {(0, 1), (1, 0)}, 0),
    "some of them": ("cdd", "123", "dc", "29", {(1, 0)}, 0),
    "none": ("c", "1", "c", "2", set(), 0),
    "copies pair one by one": ("ccc", "111", "cc", "11", {(0, 0), (1, 1)}, 0),
    "another label": ("cd", "12", "dd", "12", {(0, 0), (1, 1)}, 1),
    "a copy under each label": ("cd", "11", "dd", "11", {(0, 0), (1, 1)}, 1),
    "another label, and a copy less": ("ccd", "112", "d", "1", {(0, 0)}, 1),
}


@pytest.mark.parametrize(
    ("labels", "keys", "labels_2", "keys_2", "rows", "relabelled"), PAIRS.values(), ids=PAIRS.keys()
)
def test_images_pair_by_content(
    labels: str, keys: str, labels_2: str, keys_2: str, rows: set[tuple[int, int]], relabelled: int
) -> None:
    # The confidences tell which rows were compared.
    sure = [[0.6 + 0.05 * row for row in range(len(said))] for said in (labels, labels_2)]
    first, second = pets(labels, labels, keys, sure[0]), pets(labels_2, labels_2, keys_2, sure[1])
    facts = compare(first, second)
    assert facts.shared.baseline
    models = facts.shared.baseline, facts.shared.candidate
    compared = [np.round((model.stats.confidence - 0.6) / 0.05).astype(int) for model in models]
    assert {*zip(*compared, strict=True)} == rows
    assert facts.relabelled == relabelled


@pytest.mark.parametrize(
    ("before", "after", "outcome", "said"),
    [
        (0.6, 0.8, "better", "B is better than A by 21 points (15.4 to 27.4)."),
        (0.8, 0.6, "worse", "B is worse than A by 19.5 points (14.3 to 25.7)."),
        (0.7, 0.72, "undecided", "Undecided: 200 images are too few to compare B with A."),
    ],
)
def test_the_paired_interval_decides(before: float, after: float, outcome: str, said: str) -> None:
    first, second = draw_answers(before), draw_answers(after, seed=1)
    facts = compare(first, second)
    right, now = first.evaluated.candidate.stats.right, second.evaluated.candidate.stats.right
    assert facts.change
    assert facts.change.interval == paired_interval(now, right)
    assert (facts.outcome, facts.headline) == (outcome, said)
    assert any("includes 0" in reason for reason in facts.reasons) == (outcome == "undecided")


def test_of_other_classes_only_the_images_count_that_both_models_know() -> None:
    first = answer(["cat", "dog", "dog"], ["cat", "dog", "cat"], labels=PETS)
    labels = ("bird", "dog", "cat")
    second = answer(["cat", "dog", "dog"], ["cat", "dog", "dog"], labels=labels)
    change = compare(first, second).change
    assert change
    assert (change.before, change.after) == (2 / 3, 1)
    second = answer(["bird", "dog", "dog"], ["bird", "dog", "dog"], labels=labels)
    facts = compare(first, second)
    assert facts.change
    assert (facts.change.before, facts.change.after) == (0.5, 1)
    assert "both runs evaluated 2 whose label both models know, besides 1" in facts.reasons[-1]


def test_changed_images_are_sorted_by_confidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.report.comparison._MOST_IMAGES", 2)
    first = pets("ccccd", "ccccc", "12345", [0.9, 0.6, 0.8, 0.7, 0.9])
    second = pets("ccccd", "dddcd", "12345", [0.7, 0.9, 0.9, 0.9, 0.6])
    facts = compare(first, second)
    assert (facts.lost.tolist(), facts.won.tolist()) == ([2, 0, 1], [4])
    text = words(render_comparison(facts))
    assert "2 of 3 images, those that both models are most confident about first." in text
    # The prediction of the model that is wrong.
    assert "True 10.0% cat Predicted 90.0% dog cat/0002.jpg" in text
    assert "True 10.0% dog Predicted 90.0% cat dog/0004.jpg" in text


def test_runs_without_shared_images_are_not_paired() -> None:
    facts = compare(pets("cd", "cd", "12"), pets("cd", "cc", "34"))
    assert (facts.outcome, facts.change) == ("apart", None)
    page = render_comparison(facts)
    text = words(page)
    assert "A and B cannot be compared: they share no images." in text
    assert "Accuracy on all of its images 1.000 0.500" in text
    assert "<svg" not in page
    assert "Changed predictions" not in text


def test_both_models_are_judged_by_the_newer_labels() -> None:
    old, new = "ccccccdddd", "ccccdddddd"
    first, second = pets(old, old, "0123456789"), pets(new, "ccccddddcd", "0123456789")
    facts = compare(first, second)
    assert facts.change
    assert facts.unchanged
    assert (facts.change.before, facts.change.after) == (0.8, 0.9)
    assert (facts.unchanged.before, facts.unchanged.after) == (1, 7 / 8)
    reasons = " ".join(facts.reasons)
    assert "2 labels changed between the runs." in reasons
    assert (
        "judged by the labels of B, the newer run. On the 8 images with unchanged labels,"
        in reasons
    )
    assert "0.875 for B, 1.000 for A; the difference is -0.125" in reasons
    facts = compare(second, first, newest=0)
    assert facts.change
    assert (facts.change.before, facts.change.after) == (0.9, 0.8)
    assert "judged by the labels of A, the newer run" in " ".join(facts.reasons)


def test_only_what_differs_is_listed() -> None:
    changed: dict[str, Any] = {
        "images": {"folder": "/data", "fingerprint": "files:6,sha256:bbbb", "train: cat": 90},
        "settings": {"training.epochs": 30, "training.seed": 0, "training.<b>": None},
        "code of steps": {"Trainer": "t2", "Evaluator": "e1"},
    }
    text = words(render_comparison(compare(draw_answers(0.6), draw_answers(0.8), parts=changed)))
    assert "train: cat 100 90" in text
    assert "train: dog 50 none" in text
    assert "Settings A B training.epochs 20 30" in text
    assert "fingerprint files:5,sha256:aaaa files:6,sha256:bbbb" in text
    assert "Trainer t1 t2" in text
    assert "The same in both runs: versions." in text
    assert "training.seed" not in text
