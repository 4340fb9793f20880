from typing import Any

import numpy as np
import pytest

from components.report.suspects import labels
from components.report.suspects.labels import find_wrong_labels, judge_labels

IMAGES, CLASSES = 600, 3


def make_columns(
    wrong: int, *, noise: float = 0.4, images: int = IMAGES, classes: int = CLASSES
) -> tuple[dict[str, Any], Any, Any]:
    """Return a table of images, their features, and which labels are wrong."""
    random = np.random.default_rng(1)
    true = np.arange(images) % classes
    features = random.normal(size=(classes, 8))[true] + random.normal(0, noise, (images, 8))
    flipped = random.permutation(images) < wrong
    names = np.array(["cat", "dog", "emu"], object)
    given = (true + flipped * random.integers(1, CLASSES, images)) % CLASSES
    columns = {
        "path": np.array([f"{number}.jpg" for number in range(images)], object),
        "sha256": np.array([f"{number:064x}" for number in range(images)], object),
        "split": np.where(np.arange(images) % 5, "train", "test").astype(object),
        "label": names[given],
        "true": names[true],
    }
    return columns, features.astype(np.float16), flipped


@pytest.mark.parametrize("together", [IMAGES, IMAGES // 4])
def test_wrong_labels_come_first_in_every_split(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, together: int
) -> None:
    monkeypatch.setattr(labels, "_TOGETHER", together)
    columns, features, flipped = make_columns(50)
    with caplog.at_level("INFO"):
        suspects, errors = find_wrong_labels(columns, features)
    texts = [
        f"{done:,} of {IMAGES:,} labels judged" for done in range(together, IMAGES + 1, together)
    ]
    assert caplog.messages == texts
    rows = [int(suspect.sha256, 16) for suspect in suspects]
    assert flipped[rows].mean() > 0.9
    assert flipped[rows].sum() >= 0.9 * flipped.sum()
    assert {suspect.split for suspect in suspects} == {"train", "test"}
    scores = [suspect.score for suspect in suspects]
    assert scores == sorted(scores, reverse=True)
    assert 1 >= scores[0] > 0.9
    assert [s.proposed for s in suspects[:30]] == columns["true"][rows[:30]].tolist()
    assert errors
    assert 0 < errors.low <= flipped.sum() <= errors.high
    assert errors.likely == pytest.approx(flipped.sum(), rel=0.25)
    assert errors.images == IMAGES


@pytest.mark.parametrize(
    ("noise", "classes"),
    [
        pytest.param(0.3, 3, id="easy images"),
        pytest.param(1.2, 3, id="hard images"),
        pytest.param(0.0, 3, id="equal images"),
        pytest.param(0.5, 1, id="one class"),
    ],
)
def test_without_wrong_labels_none_stands_out(noise: float, classes: int) -> None:
    columns, features, _ = make_columns(0, noise=noise, classes=classes)
    suspects, errors = find_wrong_labels(columns, features)
    assert suspects == []
    assert errors
    assert errors.likely == errors.low == 0


def test_the_list_goes_on_after_images_that_a_person_has_decided_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(labels, "_MOST", 7)
    columns, features, _ = make_columns(50)
    first, errors = find_wrong_labels(columns, features)
    decided = np.isin(columns["sha256"].astype(str), [suspect.sha256 for suspect in first])
    following, same = find_wrong_labels({**columns, "decided": decided}, features)
    assert len(following) == 7
    assert not {*following} & {*first}
    assert errors == same


def test_images_that_cannot_be_judged() -> None:
    columns, features, _ = make_columns(50)
    unknown = {**columns, "label": np.full(IMAGES, "", object)}
    few = {name: values[:99] for name, values in columns.items()}
    for table, values in ((unknown, features), (few, features[:99]), (columns, None)):
        assert find_wrong_labels(table, values) == ([], None)
    some = {**columns, "label": np.where(np.arange(IMAGES) < 300, columns["label"], "")}
    _, errors = find_wrong_labels(some, features)
    assert errors
    assert errors.images == 300


@pytest.mark.parametrize("unlearned", [0.25, 1.0])
def test_a_label_that_features_do_not_tell_accuses_nobody(unlearned: float) -> None:
    columns, features, _ = make_columns(50)
    rare = np.arange(IMAGES) % 8 < 8 * unlearned
    places = np.random.default_rng(0).permutation(int(rare.sum())) % 8
    columns["label"][rare] = np.array([f"rare {n}" for n in range(8)], object)[places]
    suspects, errors = find_wrong_labels(columns, features)
    assert not any(suspect.label.startswith("rare") for suspect in suspects)
    if unlearned == 1:
        assert (suspects, errors) == ([], None)
    else:
        assert errors


def test_no_image_has_a_say_about_itself() -> None:
    columns, features, _ = make_columns(0, noise=1.0, images=120)
    ids = np.unique(columns["label"].astype(str), return_inverse=True)[1]
    changed = np.r_[(ids[0] + 1) % CLASSES, ids[1:]]
    rows = np.arange(120)
    first, second = (judge_labels(features, rows, numbers) for numbers in (ids, changed))
    assert first.predicted[0] == second.predicted[0]
