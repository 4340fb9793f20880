"""Comparison of two runs: pairs, outcome and page."""

from dataclasses import replace
from typing import Any

import pytest

from components.metrics.intervals import paired_interval
from components.report.comparison import EvaluatedRun, pair, render_comparison
from tests.report.conftest import words
from tests.report.samples.comparison_sample import DATA, answer, compare, draw_answers

pytestmark = pytest.mark.usefixtures("few_resamples", "undrawn")


PETS = ("cat", "dog")


def pets(truth: str, said: str, keys: str, sure: list[float] | None = None) -> EvaluatedRun:
    """Each letter is an image: c or d, and its content."""
    names = {"c": "cat", "d": "dog"}
    spelt = [[names[letter] for letter in letters] for letters in (truth, said)]
    return answer(*spelt, labels=PETS, keys=list(keys), sure=sure)


# Labels and contents of the first and the second run, pairs of rows, and how they overlap.
PAIRS = {
    "the same images": ("cd", "12", "cd", "12", {(0, 0), (1, 1)}, (2, 0, 0, 0)),
    "in another order": ("cd", "12", "dc", "21", {(0, 1), (1, 0)}, (2, 0, 0, 0)),
    "some of them": ("cdd", "123", "dc", "29", {(1, 0)}, (1, 0, 2, 1)),
    "none": ("c", "1", "c", "2", set(), (0, 0, 1, 1)),
    "copies pair one by one": ("ccc", "111", "cc", "11", {(0, 0), (1, 1)}, (2, 0, 1, 0)),
    "another label": ("cd", "12", "dd", "12", {(0, 0), (1, 1)}, (2, 1, 0, 0)),
    "a copy under each label": ("cd", "11", "dd", "11", {(0, 0), (1, 1)}, (2, 1, 0, 0)),
    "another label, and a copy less": ("ccd", "112", "d", "1", {(0, 0)}, (1, 1, 2, 0)),
}


@pytest.mark.parametrize(
    ("labels", "keys", "labels_2", "keys_2", "rows", "overlap"), PAIRS.values(), ids=PAIRS.keys()
)
def test_images_pair_by_content(
    labels: str,
    keys: str,
    labels_2: str,
    keys_2: str,
    rows: set[tuple[int, int]],
    overlap: tuple[int, ...],
) -> None:
    first, second = pets(labels, labels, keys), pets(labels_2, labels_2, keys_2)
    assert set(pair(first, second)) == rows
    assert compare(first, second).overlap == overlap


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
    assert facts.shared
    assert facts.shared.change.interval == paired_interval(now, right)
    assert (facts.outcome, facts.headline) == (outcome, said)
    assert any("includes 0" in reason for reason in facts.reasons) == (outcome == "undecided")


def test_the_models_may_have_other_classes() -> None:
    first = answer(["cat", "dog", "dog"], ["cat", "dog", "cat"], labels=PETS)
    second = answer(["cat", "dog", "dog"], ["cat", "dog", "dog"], labels=("bird", "dog", "cat"))
    facts = compare(first, second)
    assert facts.shared
    assert {
        part.value: (part.baseline, part.accuracy) for part in facts.shared.comparison.slices
    } == {
        "cat": (1.0, 1.0),
        "dog": (0.5, 1.0),
    }


def test_changed_images_are_sorted_by_confidence() -> None:
    first = pets("ccccd", "ccccc", "12345", [0.9, 0.6, 0.8, 0.7, 0.9])
    second = pets("ccccd", "dddcd", "12345", [0.7, 0.9, 0.9, 0.9, 0.6])
    facts = compare(first, second, most=2)
    assert facts.shared
    lost, won = facts.shared.shown_lost, facts.shared.shown_won
    assert (facts.shared.lost, [image.filename[-5] for image in lost]) == (3, ["2", "0"])
    assert (facts.shared.won, [image.filename[-5] for image in won]) == (1, ["4"])
    # The prediction of the model that is wrong.
    assert [(image.label, image.predicted) for image in (lost[0], won[0])] == [
        ("cat", "dog"),
        ("dog", "cat"),
    ]
    assert [image.confidence for image in (lost[0], won[0])] == pytest.approx([0.9, 0.9])
    text = words(render_comparison(facts))
    assert "2 of 3 images, those that both models are most confident about first." in text


def test_runs_without_shared_images_are_not_paired() -> None:
    facts = compare(pets("cd", "cd", "12"), pets("cd", "cc", "34"))
    assert (facts.outcome, facts.shared) == ("apart", None)
    page = render_comparison(facts)
    text = words(page)
    assert "A and B cannot be compared: they were evaluated on different images." in text
    assert "Images evaluated by both runs: 0; only by A: 2; only by B: 2" in text
    assert "Accuracy on all of its images 1.000 0.500" in text
    assert "<svg" not in page
    assert "Changed predictions" not in text


def test_both_models_are_judged_by_the_newer_labels() -> None:
    old, new = "ccccccdddd", "ccccdddddd"
    first, second = pets(old, old, "0123456789"), pets(new, "ccccddddcd", "0123456789")
    facts = compare(first, second)
    assert facts.shared
    assert facts.shared.unchanged
    assert (facts.shared.change.before, facts.shared.change.after) == (0.8, 0.9)
    assert (facts.shared.unchanged.before, facts.shared.unchanged.after) == (1, 7 / 8)
    right = first.evaluated.candidate.stats.right[[0, 1, 2, 3, 6, 7, 8, 9]]
    now = second.evaluated.candidate.stats.right[[0, 1, 2, 3, 6, 7, 8, 9]]
    assert facts.shared.unchanged.interval == paired_interval(now, right)
    told = " ".join(facts.reasons)
    assert "2 test labels changed between the runs." in told
    assert (
        "judged by the labels of B, the newer run. On the 8 images with unchanged labels," in told
    )
    assert "0.875 for B, 1.000 for A; the difference is -0.125" in told
    facts = compare(second, first, newest=0)
    assert facts.shared
    assert (facts.shared.change.before, facts.shared.change.after) == (0.9, 0.8)
    assert "judged by the labels of A, the newer run" in " ".join(facts.reasons)


def test_a_label_that_the_older_model_does_not_know_counts_as_wrong() -> None:
    first = answer(["cat", "cat"], ["cat", "cat"], labels=PETS)
    second = answer(["owl", "cat"], ["owl", "cat"], labels=("cat", "owl"))
    facts = compare(first, second)
    assert facts.shared
    assert (facts.shared.change.before, facts.shared.change.after) == (0.5, 1)


USED = "/c.csv (12345678): 3 relabeled"


def test_the_corrections_of_both_runs_are_named() -> None:
    parts = {"images": {**DATA, "corrections": USED}}
    facts = compare(draw_answers(0.6), draw_answers(0.8, seed=1), parts=parts)
    assert f"Corrections of A: none; of B: {USED}." in facts.reasons
    assert "corrections none /c.csv" in words(render_comparison(facts))


def test_warnings() -> None:
    second = replace(pets("cdd", "cdd", "123"), split="eval", model="/model/2")
    facts = compare(replace(pets("ccd", "ccd", "123"), model="/model/1"), second)
    assert any("B was evaluated on its eval split" in reason for reason in facts.reasons)
    assert any("1 eval label changed between" in reason for reason in facts.reasons)
    said = "Both runs evaluated the same model: nothing was trained in between."
    assert said not in facts.reasons
    assert said in compare(second, second).reasons


def test_only_what_differs_is_listed() -> None:
    changed: dict[str, Any] = {
        "images": {"folder": "/data", "fingerprint": "files:6,sha256:bbbb", "train: cat": 90},
        "settings": {"training.epochs": 30, "training.seed": 0, "training.<b>": None},
        "code of steps": {"Trainer": "t2", "Evaluator": "e1"},
    }
    first, second = draw_answers(0.6), draw_answers(0.8)
    facts = compare(first, second, parts=changed)
    assert {title: [*rows] for title, rows in facts.parts.items()} == {
        "images": ["fingerprint", "train: cat", "train: dog", "test: cat"],
        "settings": ["training.epochs"],
        "code of steps": ["Trainer"],
        "versions": [],
    }
    text = words(render_comparison(facts))
    assert "train: cat 100 90" in text
    assert "train: dog 50 none" in text
    assert "Settings A B training.epochs 20 30" in text
    assert "fingerprint files:5,sha256:aaaa files:6,sha256:bbbb" in text
    assert "Trainer t1 t2" in text
    assert "The same in both runs: versions." in text
