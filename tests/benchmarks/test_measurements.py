"""docs/measurements.md is what the results say, and the commands that make them work."""

import importlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import label_errors, measurements
from benchmarks.measuring import options
from tests.files import write_files
from tests.pictures import write_folder


def test_the_page_is_current() -> None:
    page = measurements.PAGE.read_text(encoding="utf-8")
    assert page == measurements.render(measurements.read_results()), "run benchmarks.measurements"


def test_every_command_and_option_exists() -> None:
    for measurement in measurements.MEASUREMENTS.values():
        for given in (measurement["options"], measurement.get("tiny", "")):
            command = re.sub(r"{\w+}", "x", f"{measurement['command']} {given}")
            module, *words = shlex.split(command)
            importlib.import_module(module)._parser().parse_args(words)


@pytest.mark.slow
@pytest.mark.weekly
def test_measurements_work_on_a_few_images(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The others are below."""
    photos = write_folder(tmp_path / "photos", each=10)
    arguments = ["--tiny", "--photos", str(photos), "--only", "ingest,peers"]
    assert measurements.main(arguments) == 0, capfd.readouterr().err


def climb(tmp_path: Path, *options: str) -> Any:
    data = write_folder(tmp_path / "images", each=8)
    file = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks.input_pipeline", "--data", str(data)]
    sizes = ["--size", "32", "--batch", "8", "--images", "20"]
    times = ["--repeats", "1", "--epochs", "1", "--seconds", "0.1"]
    places = ["--json", str(file), "--work", str(tmp_path)]
    done = subprocess.run(
        [*command, *sizes, *times, *places, *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())["figures"]


@pytest.mark.slow
@pytest.mark.weekly
def test_every_rung_on_local_files(tmp_path: Path) -> None:
    measured = climb(tmp_path)
    assert len(measured["rungs"]) == 16
    assert measured["images"] == 16
    same = [rung["pixels"][0] for rung in measured["rungs"][1:]]
    assert all(text.startswith("the same, ") for text in same)
    assert all(rate > 0 for rung in measured["rungs"] for rate in rung["images_per_second"])


@pytest.mark.slow
@pytest.mark.weekly
def test_rungs_on_a_bucket(tmp_path: Path) -> None:
    words = "one by one,prefetch,decoded"
    bucket = ["--gcs-latency-ms", "20", "--rungs", words]
    measured = climb(tmp_path, *bucket)
    rates = {rung["name"]: rung["images_per_second"][0] for rung in measured["rungs"]}
    assert len(rates) == 3
    # A request of 20 ms for each image.
    assert rates["files one by one"] < 50 < rates["cache decoded"]


@pytest.mark.slow
def test_flipped_labels_are_counted_as_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = (f"{'cat' if number % 2 else 'dog'}/{number}.png" for number in range(200))
    write_files(tmp_path / "images" / "train", dict.fromkeys(names, b""))

    def pretend(folder: Path, chosen: list[str]) -> tuple[dict[str, Any], Any]:
        assert chosen == ["model.width=16"]
        paths = sorted(folder.rglob("*.png"))
        labels = np.array([path.parent.name for path in paths], object)
        true = np.array([path.name.partition("@")[0] for path in paths])
        features = (true == "cat") + np.random.default_rng(0).normal(0, 0.1, (8, len(paths)))
        columns = {
            "path": np.array([f"{p.parent.name}/{p.name}" for p in paths], object),
            "sha256": np.array([p.name for p in paths], object),
            "split": np.full(len(paths), "train", object),
            "label": labels,
        }
        return columns, features.T

    monkeypatch.setattr(label_errors, "_run", pretend)
    words = ["--data", str(tmp_path / "images"), "--rate", "0.1", "--repeats", "2"]
    words += ["--option", "model.width=16", "--json", str(tmp_path / "result.json")]
    monkeypatch.setattr("sys.argv", ["label_errors", *words])
    assert options.run(label_errors._parser(), label_errors._measure) == 0
    assert "Wrong labels of 200 images" in capsys.readouterr().out
    figures = json.loads((tmp_path / "result.json").read_text())["figures"]
    assert figures["none"] == [{"listed": 0, "images": 200}]
    for figure in (*figures["random, 10%"], *figures["similar, 10%"]):
        values = [figure[name] for name in ("flipped", "suspects", "recall", "proposed")]
        assert values == [20, 1, 1, 1]
        assert figure["low"] <= 20 <= figure["high"]
