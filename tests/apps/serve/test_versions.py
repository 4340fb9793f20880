import asyncio
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gcs_server import GcsServer
from components.contract.errors import ModelError, StorageError
from components.storage.folder import open_folder
from pipeline_def.apps.serve import command
from pipeline_def.apps.serve import versions as module
from pipeline_def.apps.serve.model import Model
from pipeline_def.apps.serve.options import ServerOptions
from pipeline_def.apps.serve.versions import Versions
from pipeline_def.config.config import Config
from pipeline_def.local.pushed_model import UNBLESSED, find_options, find_unblessed
from tests.apps.serve.serving import FakeModel, ask, push, running_app
from tests.local.run_samples import configure, write_run
from tests.storage.gs_client import point_to


def load(path: str) -> Model:
    if path.endswith("13"):
        raise ValueError("the graph is damaged")
    return FakeModel(os.path.basename(path))


def update(versions: Versions, times: int = 1) -> str:
    """Look for other versions; return the current one."""
    for _ in range(times):
        asyncio.run(versions.update())
    return versions.current.version


def test_the_newest_whole_version_is_taken_up(tmp_path: Path) -> None:
    push(tmp_path, "9")
    push(tmp_path, "10", whole=False)
    versions = Versions(str(tmp_path), load)
    assert versions.current.version == "9"
    (tmp_path / "10" / "saved_model.pb").touch()
    assert update(versions) == "10"
    # To move the newer one away is how one goes back.
    (tmp_path / "10").rename(tmp_path / "away")
    assert update(versions) == "9"
    # Without any version, what is loaded goes on answering, until there is one again.
    shutil.rmtree(tmp_path)
    update(versions)
    assert [state["version"] for state in versions.states] == ["9"]
    push(tmp_path, "11")
    assert update(versions) == "11"


def test_a_version_that_cannot_be_loaded_is_named_and_the_one_before_stays(tmp_path: Path) -> None:
    push(tmp_path, "12")
    versions = Versions(str(tmp_path), load)
    push(tmp_path, "13")
    assert update(versions, times=2) == "12"
    why = {"error_code": "UNKNOWN", "error_message": "the graph is damaged"}
    fine = {"error_code": "OK", "error_message": ""}
    assert versions.states == [
        {"version": "13", "state": "END", "status": why},
        {"version": "12", "state": "AVAILABLE", "status": fine},
    ]
    push(tmp_path, "14")
    assert update(versions) == "14"


def test_a_version_whose_files_come_late_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(tmp_path, "12")
    tries: list[str] = []

    def load_later(path: str) -> Model:
        tries.append(os.path.basename(path))
        if tries.count("14") == 1:
            raise OSError("variables are missing")
        return FakeModel(tries[-1])

    versions = Versions(str(tmp_path), load_later)
    push(tmp_path, "14")
    update(versions, times=2)
    assert tries == ["12", "14"]
    later = time.monotonic() + Versions.retry_seconds
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert update(versions) == "14"
    assert [state["state"] for state in versions.states] == ["AVAILABLE"]


def test_a_version_that_was_asked_for_stays(tmp_path: Path) -> None:
    for version in ("1", "2"):
        push(tmp_path, version)
    versions = Versions(str(tmp_path), load, "1")
    asyncio.run(versions.watch())
    assert versions.current.version == "1"
    with pytest.raises(ModelError, match=r"no version 3 in .*\. There are 2, 1"):
        Versions(str(tmp_path), load, "3")


def test_a_model_that_is_not_blessed_is_served_with_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = configure(ingest={"shrink": 48})
    write_run(tmp_path, 1, configuration=settings, blessed=False, headline="No better than before.")
    write_run(tmp_path, 2, until="ImageExampleGen")
    folder = tmp_path / "artifacts" / "Trainer" / "model" / "1" / "Format-Serving"
    push(folder.parent, folder.name)
    assert find_options(Config(output=str(tmp_path)), str(folder)).shrink == 48
    monkeypatch.setattr(command, "Model", lambda path: FakeModel(os.path.basename(path)))
    monkeypatch.setattr(command, "make_server", Stopped)
    command.serve(["--output", str(tmp_path), "--unblessed", "--port=0"])
    warning = "The model of run 1 is not blessed. No better than before."
    assert warning in " ".join(capsys.readouterr().out.split())
    with running_app(Stopped.app, ServerOptions()) as port:
        assert ask(port, "/settings.json")[1]["warning"] == warning
        [state] = ask(port, "/v1/models/images")[1]["model_version_status"]
    assert state["version"] == UNBLESSED
    (folder / "saved_model.pb").unlink()
    with pytest.raises(ModelError, match="of run 1 is not on this machine"):
        find_unblessed(str(tmp_path))


class Stopped:
    """A server that ends at once."""

    app: Any

    def __init__(self, app: Any, options: ServerOptions) -> None:
        type(self).app = app

    def run(self, sockets: Any) -> None:
        pass


def test_without_a_model_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"There is no model in .*: run the pipeline"):
        Versions(str(tmp_path / "none"), load)
    push(tmp_path, "13")
    with pytest.raises(ModelError, match=r"Cannot load .*13: the graph is damaged"):
        Versions(str(tmp_path), load)


@pytest.fixture
def pushed() -> Iterator[str]:
    """URL of an empty folder of a bucket."""
    with GcsServer() as server, point_to(server):
        server.add_bucket("bucket")
        yield "gs://bucket/out/pushed"


def test_versions_in_a_bucket_are_taken_up_when_they_are_whole(pushed: str) -> None:
    fs, root = open_folder(pushed)
    copies: list[str] = []

    def load_files(path: str) -> Model:
        files = (os.path.join(above, name) for above, _, names in os.walk(path) for name in names)
        read = {os.path.relpath(file, path): Path(file).read_bytes() for file in files}
        version = os.path.basename(path).encode()
        assert read == {"variables/index": version, "saved_model.pb": version}
        copies.append(path)
        return FakeModel(os.path.basename(path))

    with pytest.raises(ModelError, match=rf"There is no model in {pushed}"):
        Versions(pushed, load_files)
    for name in ("9/variables/index", "9/saved_model.pb", "10/variables/index"):
        fs.pipe_file(f"{root}/{name}", name.partition("/")[0].encode())
    versions = Versions(pushed, load_files)
    assert update(versions) == "9"
    fs.pipe_file(f"{root}/10/saved_model.pb", b"10")
    assert update(versions) == "10"
    assert len(copies) == 2
    assert not any(os.path.exists(path) for path in copies)


def test_a_store_that_fails_costs_neither_the_version_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger=module.__name__)
    push(tmp_path, "12")
    versions = Versions(str(tmp_path), load)
    answered = threading.Event()

    def fail(folder: str) -> None:
        answered.wait()
        raise StorageError("The store does not answer.")

    monkeypatch.setattr(module, "find_version", fail)
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(versions.update(), 0.01))
    answered.set()
    assert update(versions, times=2) == "12"
    said = [record.message for record in caplog.records]
    assert said == ["Cannot look for other versions: The store does not answer."]
