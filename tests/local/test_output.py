"""Outputs in a store, and their working copies."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.gcs_server import GcsServer
from pipeline_def.local.output.folder import Output, open_output
from tests.files import write_files
from tests.storage.gs_client import point_to


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GcsServer]:
    with GcsServer() as server, point_to(server):
        server.add_bucket("b")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        yield server


def open_at(url: str) -> tuple[Path, Output]:
    output = open_output(url)
    return Path(output.folder), output


def test_the_working_copy_is_named_after_the_url_and_stored(
    server: GcsServer, tmp_path: Path
) -> None:
    server.put("b", "x/report.html", b"schema")
    server.put("b", "x2/report.html", b"of another output")
    server.put("b", "x/somebody/else", b"not ours")
    folder, output = open_at("gs://b/x")
    assert folder == tmp_path / "tfx-image-pipeline" / "gs" / "b" / "x"
    assert (folder / "report.html").read_bytes() == b"schema"
    assert not (folder / "somebody").exists()
    names = ("logs/run.log", "sample/0/1.png", "pushed/1/saved_model.pb", "lock")
    write_files(folder, dict.fromkeys(names, b"x"))
    output.store_step()
    stored = set(server.add_bucket("b").names())
    assert {"x/pushed/1/saved_model.pb"} == stored - {
        *("x/report.html", "x2/report.html", "x/somebody/else")
    }
    output.store()
    assert set(server.add_bucket("b").names()) - stored == {"x/logs/run.log"}
    pushed = str(folder / "pushed" / "1")
    assert output.shown(pushed) == "gs://b/x/pushed/1"
    assert output.shown("/else") == "/else"


def test_the_record_and_checkpoints_of_a_run_that_fails_are_stored(server: GcsServer) -> None:
    folder, output = open_at("gs://b/x")
    names = ("runs/1/run.json", "checkpoints/1/checkpoint", "artifacts/a")
    write_files(folder, dict.fromkeys(names, b"{}"))
    with pytest.raises(KeyboardInterrupt), output.storing():
        raise KeyboardInterrupt
    assert set(server.add_bucket("b").names()) == {
        "x/runs/1/run.json",
        "x/checkpoints/1/checkpoint",
    }


def test_checkpoints_are_stored_while_a_step_runs(
    server: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline_def.local.output.folder._CHECKPOINT_INTERVAL", 0.02)
    folder, output = open_at("gs://b/x")
    (folder / "checkpoints").mkdir()
    with output.storing():
        (folder / "checkpoints" / "one").write_bytes(b"1")
        for _ in range(200):
            if server.add_bucket("b").names():
                break
            time.sleep(0.02)
    assert server.add_bucket("b").names() == ["x/checkpoints/one"]
