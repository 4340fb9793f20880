from __future__ import annotations

import collections
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import training
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


def measure(tmp_path: Path, *options: str) -> Any:
    data = write_folder(tmp_path / "images", each=8)
    target = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks.training", "--data", str(data)]
    sizes = ["--network", "cnn", "--size", "32", "--batch", "8", "--images", "16", "--epochs", "2"]
    places = ["--rounds", "1", "--work", str(tmp_path), "--json", str(target)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *sizes, *places, *options],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(target.read_text())


@pytest.mark.slow
def test_the_step_and_naive_input_are_measured(tmp_path: Path) -> None:
    printed, results = measure(tmp_path, "--part", "step", "--part", "naive")
    assert "of the bare step" in printed
    rates = [figure["images_per_second"] for [figure] in results["step"].values()]
    assert len(rates) == 4
    assert all(rate > 0 for [rate] in rates)
    seconds = [figure["seconds"] for [figure] in results["naive"].values()]
    assert len(seconds) == 4
    assert all(0 <= wait <= 1 for [f] in results["naive"].values() for wait in f["wait_share"])


def test_images_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--part", "step"])
    with pytest.raises(SystemExit, match="2"):
        training.main()
    assert "--data DIR says where they are" in capsys.readouterr().err
