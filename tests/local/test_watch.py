"""`serve --log` and `watch` after a whole run."""

import json
import math
import time
import urllib.request
from pathlib import Path

import cv2
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import local_runner
from components.contract.errors import StorageError
from pipeline_def.local.server import answer_log
from pipeline_def.local.server.model import Model
from pipeline_def.local.server.versions import Versions
from pipeline_def.local.watch_options import SCREEN, WatchOptions
from pipeline_def.local.watch_results import read_results, write_results
from tests.pictures import write_folder
from tests.server.serving import ask, instances, running

_WINDOW = 200


def test_the_help_names_all_options() -> None:
    assert all(f"--{name} " in SCREEN for name in WatchOptions.__dataclass_fields__)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--log is not set: name the folder of `serve --log`."),
        (["--log", "LOG"], "There is no log in"),
        (["--log", "LOG", "--window", "5"], "window is 5: it must be a whole number of at least"),
    ],
)
def test_a_mistake_gets_a_sentence(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path) if word == "LOG" else word for word in arguments]
    assert local_runner.main(["watch", "--output", str(tmp_path), *words]) == 2
    assert says in capsys.readouterr().err


def test_results_are_a_page_and_metrics(tmp_path: Path) -> None:
    window = {"version": "7", "from": "2026-01-01 00:00", "to": "2026-01-02 03:04", "images": 500}
    windows = [
        {**window, "unknown": 50, "findings": ["label: <b>"]},
        {**window, "unknown": 5, "findings": []},
        {**window, "version": "8", "unknown": None, "findings": ["width: x", "height: y"]},
    ]
    results = {"seen": {"a": None}, "windows": windows}
    write_results(str(tmp_path), results)
    assert read_results(str(tmp_path)) == results
    page = (tmp_path / "watch.html").read_text()
    assert "3 windows, 2 of them changed" in page
    assert "10.0%" in page
    assert "label: &lt;b&gt;" in page
    assert page.count("%</td>") == 2
    assert page.index("width: x") < page.index("label: ")
    parsed = text_string_to_metric_families((tmp_path / "watch.prom").read_text())
    values = {(of.name, of.labels["version"]): of.value for one in parsed for of in one.samples}
    assert values == {
        ("images_watch_changes", "7"): 0,
        ("images_watch_changes", "8"): 2,
        ("images_watch_unknown_ratio", "7"): 0.01,
        ("images_watch_unknown_ratio", "8"): pytest.approx(math.nan, nan_ok=True),
        ("images_watch_window_seconds", "7"): 1767323040,
        ("images_watch_window_seconds", "8"): 1767323040,
    }
    (tmp_path / "watch.json").write_text("{")
    with pytest.raises(StorageError, match=r"watch\.json is damaged: remove it"):
        read_results(str(tmp_path))


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The output of a run; every answer is measured and written soon."""
    write_folder(tmp_path / "images", each=100)
    options = ["--training.epochs", "4", "--training.folds", "0", "--evaluation.min_accuracy", "0"]
    data, output = str(tmp_path / "images"), str(tmp_path / "out")
    assert local_runner.main(["run", data, "--output", output, *options]) == 0
    monkeypatch.setattr(answer_log, "_REST", 0)
    monkeypatch.setattr(answer_log, "_FLUSH_SECONDS", 0.1)
    return tmp_path


def serve(folder: Path, files: list[bytes]) -> None:
    """Ask a server with a log for each file."""
    output, log = str(folder / "out"), str(folder / "log")
    versions = Versions(f"{output}/pushed", Model)
    with running(versions, output=output, log=log, log_pictures=0.1) as port:
        for start in range(0, len(files), 50):
            assert ask(port, body=instances(*files[start : start + 50]))[0] == 200
        deadline = time.monotonic() + 60
        address = f"http://127.0.0.1:{port}/metrics"
        while f'{{result="written"}} {len(files)}.0' not in _read(address):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _read(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        return str(answer.read().decode())


def _darken(file: bytes) -> bytes:
    pixels = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    return bytes(cv2.imencode(".jpg", pixels // 3)[1])


@pytest.mark.slow
def test_dark_images_are_found_and_nothing_is_judged_twice(
    served: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [path.read_bytes() for path in sorted((served / "images").glob("*/*"))]
    files = [file for number, file in enumerate(files) if number % 3]
    command = ["watch", "--output", str(served / "out"), "--log", str(served / "log")]
    command += ["--window", str(_WINDOW)]
    serve(served, files)
    assert local_runner.main(command) == 0
    assert "as in training" in capsys.readouterr().out
    serve(served, [_darken(file) for file in files])
    assert local_runner.main(command) == 1
    said = capsys.readouterr().out
    assert "image/mean_luminance: The values differ" in said
    assert "local_runner.py review" in said
    assert local_runner.main(command) == 0
    assert "0 answers, a window has 200" in capsys.readouterr().out
    windows = json.loads((served / "out" / "watch.json").read_text())["windows"]
    assert [window["images"] for window in windows] == [_WINDOW, _WINDOW]
    assert [bool(window["findings"]) for window in windows] == [False, True]
