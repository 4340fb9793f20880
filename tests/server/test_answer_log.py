import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from prometheus_client import CollectorRegistry

from benchmarks.gcs_server import GcsServer
from components.storage.folder import open_folder
from pipeline_def.local.server import answer_log as module
from pipeline_def.local.server.answer_log import AnswerLog, LogLimits
from pipeline_def.local.server.batching import Picture
from tests.server.fake_model import FakeModel, png
from tests.server.serving import ask, instances, serving
from tests.storage.gs_client import point_to

ROW = {"label": b"cat", "probabilities": [0.25, 0.75], "error": b"", "known": False}


def read_rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "answers").glob("*/*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Log(AnswerLog):
    """A log whose images are 4 pixels wide, and which can be asked for its metrics."""

    def __init__(self, folder: Path | str, **limits: Any) -> None:
        self.registry = CollectorRegistry()
        super().__init__(
            str(folder), LogLimits(**limits), lambda _: lambda _: {"width": 4}, self.registry
        )

    def put(self, rows: int = 1) -> None:
        self.add("7", [Picture(b"\xff\xd8" + b"x" * 100, 4)] * rows, [ROW] * rows)

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are written as soon as they come."""
    monkeypatch.setattr(module, "_FLUSH_SECONDS", 0.02)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, logger=module.__name__)
    return lambda: [record.message for record in caplog.records]


def test_each_answer_has_a_row_and_no_picture_is_kept_unless_asked(tmp_path: Path) -> None:
    logs, picture = tmp_path / "log", png(200, 100, 50, kind="JPEG")
    before = time.time()
    for version, share in (("7", 0.0), ("8", 1.0)):
        model = FakeModel(version, says_errors=True)
        with serving(model, tmp_path, log=str(logs), log_pictures=share) as port:
            assert ask(port, body=instances(picture, b"no image"))[0] == 200
            assert ask(port, body=instances(picture, signature_name="explain"))[0] == 200
    rows = read_rows(logs)
    assert [(row["version"], bool(row["error"])) for row in rows] == [
        *(("7", False), ("7", True), ("8", False), ("8", True))
    ]
    first = rows[0]
    assert before - 1 < first["time"].timestamp() < time.time()
    assert first["probability"] == pytest.approx(max(first["probabilities"]))
    assert (first["width"], first["height"], first["file_size"]) == (8, 6, len(picture))
    assert first["luminance"] == pytest.approx(0.299 * 200 + 0.587 * 100 + 0.114 * 50, abs=2)
    assert [row["picture"] is not None for row in rows] == [False, False, True, False]
    assert (logs / rows[2]["picture"]).read_bytes() == picture


def test_what_the_model_says_of_unknown_images_is_kept(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.put()
    wait_for(lambda: bool(log._rows))
    log.close()
    [row] = read_rows(tmp_path)
    assert (row["known"], row["label"], row["width"]) == (False, "cat", 4)


def test_a_log_that_fails_says_so_once_and_loses_nothing_when_it_works_again(
    tmp_path: Path, impatient: None, said: Callable[[], list[str]]
) -> None:
    (tmp_path / "file").touch()
    log = Log(tmp_path / "file", pictures=1.0)
    for _ in range(3):
        log.put()
        time.sleep(0.05)
    assert log.metric("images_log_failing") == 1
    (tmp_path / "file").unlink()
    log.put()
    wait_for(lambda: log.metric("images_log_rows_total", result="written") == 4)
    assert log.metric("images_log_failing") == 0
    log.close()
    assert len(read_rows(tmp_path / "file")) == 4
    assert len(said()) == 2
    assert "The log fails, serving goes on: Cannot write" in said()[0]


def test_rows_that_find_no_place_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    def fill(url: str, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "replace_file", fill)
    monkeypatch.setattr(module, "_MOST_ROWS", 5)
    log = Log(tmp_path)
    for _ in range(20):
        log.put()
        wait_for(lambda: log._waiting.empty())
    wait_for(lambda: log.metric("images_log_rows_total", result="lost") == 15)
    log.close()


def test_a_bucket_that_is_missing_and_comes_back(
    impatient: None, said: Callable[[], list[str]]
) -> None:
    with GcsServer() as server, point_to(server):
        log = Log("gs://logs/served")
        log.put()
        wait_for(lambda: log.metric("images_log_failing") == 1)
        server.add_bucket("logs")
        wait_for(lambda: log.metric("images_log_rows_total", result="written") == 1)
        log.close()
        fs, root = open_folder("gs://logs/served")
        [file] = fs.find(root)
    assert file.startswith("logs/served/answers/")
    assert len(said()) == 2


def test_the_oldest_files_go_and_those_of_others_stay(tmp_path: Path) -> None:
    for name in ("answers/2020-01-01/a.parquet", "pictures/2020-01-02/b.jpg", "answers/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    for hour in ("01", "02"):
        (tmp_path / "answers" / today).mkdir(exist_ok=True)
        (tmp_path / "answers" / today / f"{hour}0000-x.parquet").write_bytes(b"x" * 1000)
    Log(tmp_path, days=1, bytes=1500).close()
    left = sorted(path.name for path in tmp_path.rglob("*.*"))
    assert left == ["020000-x.parquet", "notes.txt"]


@pytest.mark.parametrize("jump", [-10 * 365, 10 * 365])
def test_a_clock_that_jumps_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[[], list[str]], jump: int
) -> None:
    log, now = Log(tmp_path, days=1), time.time
    log.put()
    monkeypatch.setattr(time, "time", lambda: now() + jump * 86_400)
    log.put()
    log.close()
    assert len(read_rows(tmp_path)) == 2
    [sentence] = said()
    assert f"jumped by {jump * 24:.1f} hours" in sentence
