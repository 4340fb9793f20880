from __future__ import annotations

import collections
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import training, training_studies
from benchmarks.training_studies import STUDIES, Images, write_images
from tests.pictures import write_folder

IMAGES = [
    (Path(f"{label}/{number}.png"), str(label)) for label in range(10) for number in range(100)
]


def count(images: Images) -> dict[str, int]:
    return collections.Counter(label for _, label in images)


def test_two_classes_become_rare() -> None:
    kept = STUDIES["imbalance"].harden(IMAGES, random.Random(0))
    assert count(kept) == {str(label): 5 if label in (3, 8) else 100 for label in range(10)}
    assert set(kept) <= set(IMAGES)


def test_a_rare_class_has_an_image_at_least() -> None:
    few = [pair for pair in IMAGES if pair[0].stem < "1"]
    assert min(count(STUDIES["imbalance"].harden(few, random.Random(0))).values()) == 1


def test_a_fifth_of_the_labels_become_wrong() -> None:
    mislabelled = STUDIES["noise"].harden(IMAGES, random.Random(0))
    assert [path for path, _ in mislabelled] == [path for path, _ in IMAGES]
    wrong = [label for path, label in mislabelled if label != path.parent.name]
    assert len(wrong) == pytest.approx(200, abs=40)
    assert set(wrong) == {str(label) for label in range(10)}


@pytest.mark.slow
def test_the_images_that_judge_are_not_changed(tmp_path: Path) -> None:
    write_images(STUDIES["noise"], str(tmp_path / "noise"))
    write_images(STUDIES["imbalance"], str(tmp_path / "rare"))
    noise, rare = (
        {path.relative_to(tmp_path / name / "test") for path in tmp_path.glob(f"{name}/test/*/*")}
        for name in ("noise", "rare")
    )
    assert noise == rare
    assert len(noise) == pytest.approx(1797 / 4, abs=1)
    for split in ("train", "eval"):
        files = [path.name for path in tmp_path.glob(f"noise/{split}/*/*")]
        assert len(files) == len(set(files)), "each image has one label"
        assert not set(files) & {path.name for path in noise}


@pytest.mark.slow
def test_every_contender_is_measured(tmp_path: Path) -> None:
    from benchmarks import training_run
    from benchmarks.ladder.data import prepare

    data, folder = write_folder(tmp_path / "images", each=8), str(tmp_path / "material")
    prepare(str(data), folder, size=32, images=16)
    trainings = {training_run.NAIVE, training_run.NAIVE_AHEAD, training_run.JPEG}
    for contender in (*trainings, training_run.BARE, training_run.JPEG_READER):
        task = training_run.Task(contender, folder, network="cnn", batch=8, epochs=2)
        figures = training_run.measure(task)
        [rate] = figures["images_per_second"]
        assert rate > 0
        if contender in trainings:
            [wait] = figures["wait_share"]
            assert 0 <= wait <= 1
            assert figures["seconds"] > 16 / rate


def figures(rate: float, wait: float, seconds: float) -> list[dict[str, Any]]:
    return [
        {"images_per_second": [rate * of, rate], "wait_share": [wait], "seconds": seconds * of}
        for of in (0.9, 1.0, 1.1)
    ]


def show(
    part: str,
    results: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """Return the table of `part` for figures that nobody had to measure."""
    monkeypatch.setattr(training, "_take_turns", lambda *_: results)
    monkeypatch.setattr(sys, "argv", ["training", "--part", part, "--data", "images"])
    assert training.main() == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_the_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.training_run import BARE, DECODED, NAIVE

    step = {
        BARE: [{"images_per_second": [1000.0]}, {"images_per_second": [500.0]}],
        DECODED: [{"images_per_second": [970.0]}, {"images_per_second": [495.0]}],
    }
    assert "0.980 (0.970 to 0.990)" in show("step", step, monkeypatch, capsys)
    naive = {NAIVE: figures(100, 0.4, 1046), DECODED: figures(200, 0.0, 709)}
    printed = show("naive", naive, monkeypatch, capsys)
    assert "32%" in printed
    assert "40.0%" in printed


def test_the_table_of_a_study(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = {"none": [0.8, 0.9], "weights": [0.9, 0.94], "sampling": [0.7, 0.9]}
    results = {arm: [{"balanced_accuracy": s} for s in values] for arm, values in scores.items()}
    monkeypatch.setattr(training_studies, "run_study", lambda *_, **__: results)
    monkeypatch.setattr(sys, "argv", ["training", "--part", "imbalance", "--repeats", "2"])
    assert training.main() == 0
    printed = capsys.readouterr().out
    assert "0.9200" in printed
    assert "+0.0700 (+0.0400 to +0.1000)" in printed


def test_images_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--part", "step"])
    with pytest.raises(SystemExit, match="2"):
        training.main()
    assert "--data DIR says where they are" in capsys.readouterr().err
