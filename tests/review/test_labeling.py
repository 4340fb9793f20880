"""Proposals for images without labels."""

import collections
import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import local_runner
from components.images.options import FileOptions
from components.ingest.source.corrections import Correction
from components.predict.model import Answer
from pipeline_def.local.review import labeling
from pipeline_def.local.review.labeling import Predicted, choose, describe_control, is_control
from pipeline_def.local.review.options import ReviewOptions
from pipeline_def.local.review.suspect_list import ReviewedImage
from tests.review.reviewed import digest, draw_images, reviewing
from tests.server.serving import ask

IMAGES = {path.replace("/", "-"): data for path, data in draw_images(12).items()}


def make_predictions(count: int) -> list[Predicted]:
    def rank(number: int) -> Any:
        first = 0.5 + number / count / 2
        return (("ab"[number % 2], first), ("c", 1 - first))

    return [Predicted(f"{number}.jpg", rank(number)) for number in range(count)]


def test_uncertain_and_typical_images_take_turns_and_every_fifth_is_random() -> None:
    found = [*choose(make_predictions(1000), most=100)]
    kinds = [kind for kind, _ in found]
    assert kinds[:5] == ["uncertain", "typical", "uncertain", "typical", "control"]
    assert collections.Counter(kinds) == {"uncertain": 40, "typical": 40, "control": 20}
    by_kind: dict[str, list[Predicted]] = collections.defaultdict(list)
    for kind, one in found:
        by_kind[kind].append(one)
        assert is_control(one.path) == (kind == "control")
    assert max(one.margin for one in by_kind["uncertain"]) < 0.06
    assert min(one.margin for one in by_kind["typical"]) > 0.94
    labels = collections.Counter(one.ranking[0][0] for one in by_kind["typical"])
    assert labels == {"a": 20, "b": 20}
    margins = sorted(one.margin for one in by_kind["control"])
    assert margins[4] < 0.5 < margins[-5], "certain and uncertain ones alike"


def test_the_control_group_does_not_depend_on_other_images() -> None:
    rows = make_predictions(500)
    assert [one for one in choose(rows[:200]) if one[0] == "control"] == [
        one for one in choose(rows[199::-1]) if one[0] == "control"
    ]
    assert sum(is_control(one.path) for one in rows) == pytest.approx(100, abs=30)
    assert {one.path for _, one in choose(rows)} == {one.path for one in rows}, "each image once"


def test_only_the_control_group_tells_how_often_proposals_are_right() -> None:
    def image(number: int, kind: str) -> ReviewedImage:
        return ReviewedImage(str(number), "x.jpg", "", "", "a", ((kind, 0.5),), ())

    images = [image(n, "control" if n < 10 else "typical") for n in range(30)]
    rows = {
        one.sha256: Correction(one.sha256, "x.jpg", "relabel", "", "a" if n not in (2, 3) else "b")
        for n, one in enumerate(images)
    }
    rows["9"] = Correction("9", "x.jpg", "unsure", "")
    assert [*describe_control(images, rows)] == [
        "7 of 9 proposals in the control group were right: 78% (95% interval 45% to 94%)",
        "1 of the control group got no label",
    ]
    assert [*describe_control(images, {})] == []


class FakeModel:
    """Proposes by the first letter of the color, which it knows from the digest."""

    def __init__(self, folder: str, *, top: int) -> None:
        self.names = {digest(data): path.partition("-")[0] for path, data in IMAGES.items()}

    def predict(self, images: Sequence[bytes]) -> list[Any]:
        names = (self.names[digest(data)] for data in images)
        return [Answer(((name, 0.9), ("other", 0.1))) for name in names]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "flat"
    folder.mkdir()
    for path, data in IMAGES.items():
        (folder / path).write_bytes(data)
    (folder / "notes.txt").write_text("no image")
    monkeypatch.setattr(labeling, "RankingModel", FakeModel)
    monkeypatch.setattr(labeling, "import_quietly", lambda: None)
    monkeypatch.setattr(labeling, "find_model", lambda *_: "/model")
    monkeypatch.setattr(labeling, "find_options", lambda *_: FileOptions(threads=1))
    return folder


def test_labels_become_a_manifest_and_a_labeled_copy(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with reviewing(output, images=str(folder)) as port:
        _, listed = ask(port, "/api/images")
        assert len(listed["images"]) == 12
        assert listed["labels"] == ["blue", "green", "red"]
        first, second, third, *_ = (one["sha256"] for one in listed["images"])
        headers: Any = {"Content-Type": "application/json"}
        for sha256, to in ((first, "red"), (second, "blue"), (third, "")):
            body = {"sha256": sha256, "action": "relabel" if to else "unsure", "to": to}
            assert ask(port, "/api/decisions", body, **headers)[0] == 200
        kept = {"sha256": third, "action": "keep"}
        assert ask(port, "/api/decisions", kept, **headers)[0] == 400, "it has no label"
        paths = [one["path"] for one in listed["images"]]
    with (output / "labels-manifest.csv").open(encoding="utf-8") as file:
        assert [*csv.reader(file)] == [["path", "label"], [paths[0], "red"], [paths[1], "blue"]]
    with reviewing(output, images=str(folder)) as port:
        _, again = ask(port, "/api/images")
        assert {one["path"] for one in again["images"][-3:]} == set(paths[:3]), "decided ones last"
        assert len(again["decisions"]) == 3
    copy = tmp_path / "copy"
    words = ["review", str(folder), "--output", str(output), "--apply-to", str(copy)]
    assert local_runner.main(words) == 0
    found = {str(path.relative_to(copy)) for path in copy.rglob("*.jpg")}
    assert found == {f"red/{paths[0]}", f"blue/{paths[1]}"}


def test_files_that_a_manifest_cannot_name_are_left_out(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in [*IMAGES][1:]:
        (folder / path).rename(folder / os.fsdecode(b"\xff" + path.encode()))
    options = ReviewOptions(output=str(tmp_path / "out"), images=str(folder))
    assert [image.path for image in labeling.propose(str(folder), options)[0]] == [*IMAGES][:1]
    assert "11 files, as a manifest cannot name them" in capsys.readouterr().out


def test_a_folder_without_images_gets_a_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in folder.glob("*.jpg"):
        path.unlink()
    words = ["review", str(folder), "--output", str(tmp_path / "out")]
    assert local_runner.main(words) == 2
    assert "The model can predict no file" in capsys.readouterr().err
