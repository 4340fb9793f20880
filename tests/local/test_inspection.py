import glob
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import local_runner
from components.contract.errors import ConfigurationError
from components.trainer.config.training import TrainingConfig
from pipeline_def.local.first_look import check_accelerator
from tests.pictures import encode, picture, write_folder
from tests.repository import ROOT


def inspect(capsys: pytest.CaptureFixture[str], folder: Path, *argv: str) -> tuple[int, str, str]:
    status = local_runner.main(["inspect", str(folder), *argv])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_a_good_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path / "span-2", each=40)
    (tmp_path / "span-1").mkdir()
    status, out, err = inspect(capsys, tmp_path / "span-{SPAN}")
    assert (status, err) == (0, "")
    text = " ".join(out.split())
    assert f"{tmp_path}/span-2 " in text, "the newest span"
    assert "120 in 3 classes" in text
    assert "Width 32 to 32 pixels, median 32 Height 24 to 24 pixels, median 24" in text
    assert "JPEG 90, PNG 30" in text
    assert "cnn at 32 x 32 pixels" in text
    assert (
        "Advice a held-out split has about 24 images, so the accuracy on it will be known only to "
        "± 0.20: use 100 or more, or cross-validation, which a run chooses if it takes minutes"
        in text
    )
    judged = inspect(capsys, tmp_path / "span-{SPAN}", "--training.folds", "5")
    assert "held-out" not in judged[1], "all images judge the model"
    assert "Layout label/image: the folders are labels Labels blue 40, green 40, red 40" in text
    assert "Splits train about 96, eval about 24 Files" in text
    assert "Warning" not in text


def test_what_would_go_wrong_is_said_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path, each=60, labels=("red",))
    write_folder(tmp_path, each=5, labels=("blue",))
    (tmp_path / "red" / "page.jpg").write_text("<html>")
    status, out, err = inspect(capsys, tmp_path)
    assert status == 2, "a run would stop too"
    assert "1 of 66 files in" in err
    assert "Labels       red 61, blue 5\n" in out
    assert "red/page.jpg: not an image" in out
    assert "1.5% of the sample would be rejected; a run stops above 1.0%" in out
    assert "unbalanced: 61 images of 'red', 5 of 'blue'" in out
    assert "fewer than 20 images of 'blue'" in out


def test_a_sample_may_show_that_a_run_would_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path, each=20)
    for file in (tmp_path / "red").iterdir():
        file.write_text("<html>")
    monkeypatch.setattr("components.ingest.survey.SAMPLE", 30)
    fraction = "--ingest.max_reject_fraction"
    assert inspect(capsys, tmp_path, fraction, "0.2")[0] == 0, "too few in the sample to be sure"
    status, _, err = inspect(capsys, tmp_path, fraction, "0.1")
    assert (status, "of 60 files in" in err) == (2, True)


def test_what_is_skipped_and_labels_that_look_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path, each=30)
    shutil.copytree(tmp_path / "red", tmp_path / "Red")
    (tmp_path / "readme.txt").write_text("x")
    (tmp_path / ".DS_Store").write_text("x")
    _, out, _ = inspect(capsys, tmp_path)
    assert "1 hidden, 1 not inside a label folder" in out
    assert "labels that differ only in case, spaces or Unicode form: 'Red', 'red'" in out


def test_status_2_when_a_run_would_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path, each=4, labels=("red",))
    status, _, err = inspect(capsys, tmp_path)
    assert status == 2
    assert "only one class" in err
    write_folder(tmp_path, each=4, labels=("blue",))
    status, _, err = inspect(capsys, tmp_path)
    assert status == 2
    assert "leaves 2 images to evaluate the model on, but even if it is always right, 4 " in err
    always = ("--evaluation.decide_by", "value")
    assert inspect(capsys, tmp_path, *always)[0] == 0
    status, _, err = inspect(capsys, tmp_path, *always, "--evaluation.slices", "[camera]")
    assert (status, "evaluation.slices names 'camera'" in err) == (2, True)


@pytest.mark.slow
def test_a_look_loads_neither_tensorflow_nor_tfx_nor_beam(tmp_path: Path) -> None:
    write_folder(tmp_path, each=3)
    program = (
        "import sys, local_runner; status = local_runner.main(sys.argv[1:]); "
        "sys.exit(status or not {'tensorflow', 'tfx', 'apache_beam'}.isdisjoint(sys.modules))"
    )
    command = [sys.executable, "-c", program, "inspect", str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_choices_and_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(20):
        file = tmp_path / "ab"[number % 2] / f"{number}.jpg"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(encode(picture(number, height=100, width=400), "JPEG"))
    always = ("--evaluation.decide_by", "value")
    _, out, _ = inspect(capsys, tmp_path, *always)
    assert "Weights      ImageNet's for efficientnet_lite0\n" in out
    assert (
        "the central square, 25% of the typical image: show all of it with --transform.fit" in out
    )
    _, out, _ = inspect(capsys, tmp_path, *always, "--model.name", "mobilenet_v2")
    assert "Weights      random; --model.weights imagenet downloads ImageNet's\n" in out
    words = ("--model.weights", "none", "--augmentation.flip", "true")
    _, out, _ = inspect(capsys, tmp_path, *always, *words, "--transform.fit", "letterbox")
    assert "training.epochs 60, training.patience 15\n" in out
    assert "--augmentation.flip true changes nothing: recipe photos sets it already" in out
    assert "central square" not in out


@pytest.mark.parametrize("kind", ["gpu", "workers"])
def test_an_accelerator_that_is_not_there(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glob, "glob", lambda pattern: [])
    with pytest.raises(ConfigurationError, match=f"accelerator is {kind}, but .* cpu or auto"):
        check_accelerator(TrainingConfig(accelerator=kind))
    monkeypatch.setattr(glob, "glob", lambda pattern: [pattern])
    check_accelerator(TrainingConfig(accelerator="gpu"))
