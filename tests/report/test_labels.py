from typing import Any

import numpy as np
import pytest

from components.report.suspects import labels
from components.report.suspects.labels import (
    count_confident_errors,
    find_wrong_labels,
    score_labels,
)

TRAINED, HELD = 1600, 400


def make_columns(
    wrong: int, *, mean: float = 2.5, deviation: float = 0.9, held: int = HELD
) -> tuple[dict[str, Any], Any]:
    """Return a table of images, and which labels are wrong: the same fraction of both parts."""
    random = np.random.default_rng(1)
    images = TRAINED + held
    flipped = np.arange(images) % (images // wrong) == 0 if wrong else np.zeros(images, bool)
    right = random.normal(mean, deviation, images)
    margin = np.where(flipped, random.normal(-2.0, 1.0, images), right)
    probability = random.uniform(0.7, 1, images)
    given = np.where(flipped, random.uniform(0, 0.05, images), probability)
    margin[TRAINED:] = np.nan
    # The network has learned the wrong labels of the images that it was trained on.
    given[:TRAINED] = probability[:TRAINED]
    texts = {
        "path": [f"cat/{number}.jpg" for number in range(images)],
        "sha256": [f"{number:064x}" for number in range(images)],
        "split": ["train"] * TRAINED + ["test"] * held,
        "label": ["cat"] * images,
        "proposed": ["dog"] * images,
    }
    numbers = {"margin": margin, "probability": probability, "given_probability": given}
    arrays = {name: np.array(values, object) for name, values in texts.items()}
    return {**arrays, **{name: of.astype(np.float32) for name, of in numbers.items()}}, flipped


def test_wrong_labels_come_first_in_every_split() -> None:
    columns, flipped = make_columns(100)
    suspects, errors = find_wrong_labels(columns)
    rows = [int(suspect.sha256, 16) for suspect in suspects]
    assert flipped[rows[: flipped.sum()]].mean() > 0.95
    assert {suspect.split for suspect in suspects} == {"train", "test"}
    scores = [suspect.score for suspect in suspects]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)
    assert 1 >= scores[0] > 0.9
    assert {(s.label, s.proposed, s.reason) for s in suspects} == {("cat", "dog", "label")}
    assert errors
    assert errors.low <= flipped.sum() <= errors.high
    assert errors.likely == pytest.approx(flipped.sum(), rel=0.25)
    assert len(suspects) <= errors.high
    assert errors.images == TRAINED + HELD


@pytest.mark.parametrize(
    ("mean", "deviation"),
    [
        pytest.param(3.0, 0.8, id="easy images"),
        pytest.param(0.7, 1.0, id="hard images, a quarter of them with negative margins"),
        pytest.param(0.0, 0.0, id="equal margins"),
    ],
)
def test_without_wrong_labels_none_stands_out(mean: float, deviation: float) -> None:
    columns, _ = make_columns(0, mean=mean, deviation=deviation)
    suspects, errors = find_wrong_labels(columns)
    assert suspects == []
    assert errors
    assert errors.likely == errors.low == 0


def test_the_list_goes_on_after_images_that_a_person_has_decided_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(labels, "_MOST", 7)
    columns, _ = make_columns(100)
    first, errors = find_wrong_labels(columns)
    decided = np.isin(columns["sha256"].astype(str), [one.sha256 for one in first])
    following, fewer = find_wrong_labels({**columns, "decided": decided})
    assert len(following) == 7
    assert not {*following} & {*first}
    assert errors
    assert fewer
    assert fewer.images == errors.images - 7


def test_images_that_cannot_be_judged() -> None:
    columns, flipped = make_columns(100, held=0)
    _, errors = find_wrong_labels(columns)
    assert errors
    assert errors.low <= flipped.sum() <= errors.high
    unknown = {**columns, "label": np.array([""] * TRAINED, object)}
    few = {name: values[:99] for name, values in columns.items()}
    older = {name: values for name, values in columns.items() if name != "margin"}
    assert [find_wrong_labels(table) for table in (unknown, few, older)] == [([], None)] * 3


@pytest.mark.parametrize(("unlearned", "by_heart"), [(0.25, False), (0.25, True), (1.0, False)])
def test_a_label_that_the_network_has_not_learned_accuses_nobody(
    unlearned: float, by_heart: bool
) -> None:
    columns, flipped = make_columns(100)
    rare = np.arange(len(flipped)) % 4 < 4 * unlearned
    contradicted = rare & (np.isnan(columns["margin"]) if by_heart else True)
    columns["label"] = np.where(rare, "rare", columns["label"])
    columns["given_probability"][contradicted] = 0
    columns["margin"][rare & ~np.isnan(columns["margin"])] -= 5
    suspects, errors = find_wrong_labels(columns)
    assert "rare" not in {suspect.label for suspect in suspects}
    if unlearned == 1:
        assert (suspects, errors) == ([], None)
    else:
        assert errors
        assert errors.low <= (flipped & ~rare).sum() <= errors.high < 200


def test_huge_margins_of_few_images_hide_no_wrong_labels() -> None:
    columns, flipped = make_columns(100)
    columns["margin"][1] = 1e7
    _, errors = find_wrong_labels(columns)
    assert errors
    assert errors.likely == pytest.approx(flipped.sum(), rel=0.25)


def test_scores_fall_with_the_margin() -> None:
    margin = np.linspace(-4, 9, TRAINED)
    margin[:100] = np.linspace(-9, -4, 100)
    scores, _ = score_labels(margin, np.ones(TRAINED), np.ones(TRAINED))
    assert (np.diff(scores) <= 0).all()


def test_the_most_confident_predictions_tell_the_fraction_of_wrong_labels() -> None:
    confidence = np.linspace(1, 0.5, 1000)
    # A tenth of the labels is wrong everywhere; the network errs in the less confident half.
    wrong = (np.arange(1000) % 10 == 0) | ((np.arange(1000) >= 500) & (np.arange(1000) % 2 == 0))
    low, likely, high = count_confident_errors(confidence, wrong)
    assert likely == pytest.approx(0.1)
    assert low < 0.1 < high < 0.15
