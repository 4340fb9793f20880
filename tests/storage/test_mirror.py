"""Copies of a folder in Cloud Storage and S3, with and without faults."""

import itertools
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from benchmarks.gcs_server import Fault, GcsServer
from components.contract.errors import StorageError
from components.storage import retry
from components.storage.folder import open_folder
from components.storage.folder_listing import find_files
from components.storage.mirror import Mirror
from components.storage.retry import RetryPolicy
from tests.files import read_files, write_files
from tests.storage.gs_client import point_to
from tests.storage.s3_server import serve_s3

NAMES = ("artifacts", "pushed", "runs", "metadata.sqlite")
# Each hits 5 % of all requests.
FAULTS: tuple[Fault, ...] = (429, 500, 503, "reset", "stall", "short", "corrupt")


def mirror(url: str, folder: Path) -> Mirror:
    folder.mkdir(exist_ok=True)
    return Mirror(
        url,
        str(folder),
        names=NAMES,
        last=lambda name: ("pushed" in name) + ("saved_model" in name),
        translated=lambda name: name.endswith("run.json"),
    )


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, without the mirror's own."""
    files = read_files(folder)
    return {path: data for path, data in files.items() if os.path.basename(path)[0] != "."}


@pytest.fixture
def server() -> Iterator[GcsServer]:
    policy = RetryPolicy(first_pause=0.002, longest_pause=0.02, silence=0.1, first_deadline=2)
    with GcsServer() as server, point_to(server, policy):
        server.add_bucket("bucket")
        server.stall_seconds = 1.0
        yield server


def a_run(folder: Path) -> Path:
    """Write files like those of a run: empty, small, large, and a record with paths."""
    files = {
        "artifacts/Trainer/1/log": b"",
        "artifacts/Transform/2/shard": os.urandom(700_000),
        "pushed/7/saved_model.pb": b"graph",
        "pushed/7/variables/data": os.urandom(1000),
        "runs/1/run.json": f'{{"uri": "{folder}/artifacts/x", "output": "{folder}"}}'.encode(),
        "metadata.sqlite": os.urandom(9000),
    }
    return write_files(folder, files)


def check_a_copy(url: str, tmp_path: Path, *, files: int) -> None:
    here = a_run(tmp_path / "here")
    write_files(here, {f"artifacts/many/{number}": os.urandom(50) for number in range(files)})
    write_files(here, {"logs/run": b"not ours", "artifacts/x_unfinished": b"1"})
    mirror(url, here).store()
    objects = {entry.path: entry for entry in find_files(url)}
    assert "logs/run" not in objects
    there = tmp_path / "there"
    assert mirror(url, there).fetch() == len(objects)
    kept = {k: v for k, v in tree(here).items() if k in objects}
    record = kept["runs/1/run.json"].replace(b"/here", b"/there")
    assert tree(there) == kept | {"runs/1/run.json": record}
    fs, root = open_folder(url)
    text = fs.cat_file(f"{root}/runs/1/run.json").decode()
    # Complete for a reader without a listing, too.
    assert text == f'{{"uri": "{url}/artifacts/x", "output": "{url}"}}'


@pytest.mark.slow
def test_a_copy_in_cloud_storage_survives_faults(server: GcsServer, tmp_path: Path) -> None:
    server.fault_rates = dict.fromkeys(FAULTS, 0.05)
    check_a_copy("gs://bucket/out", tmp_path, files=100)
    counted = retry.count_retries()
    assert sum(counted.values()) >= sum(server.met.values()) - server.met["corrupt"] > 30
    assert set(server.met) == set(FAULTS)
    assert counted["a wrong checksum"] >= server.met["corrupt"] / 2
    assert {"HTTP status 429", "HTTP status 503", "a timeout", "a wrong checksum"} <= set(counted)


@pytest.mark.slow
def test_a_copy_in_s3(tmp_path: Path) -> None:
    with serve_s3("bucket"):
        check_a_copy("s3://bucket/out", tmp_path, files=10)


def test_only_changes_are_transferred(server: GcsServer, tmp_path: Path) -> None:
    here = write_files(tmp_path, {"artifacts/a": b"1", "artifacts/b": b"2", "pushed/c": b"3"})
    mirror("gs://bucket", here).store()
    (here / "artifacts" / "a").unlink()
    write_files(here, {"artifacts/b": b"22"})
    server.counts.clear()
    mirror("gs://bucket", here).store()
    assert (server.counts["upload"], server.counts["delete"]) == (1, 1)
    assert [entry.path for entry in find_files("gs://bucket")] == ["artifacts/b", "pushed/c"]


def test_lost_files_are_restored_on_both_sides(server: GcsServer, tmp_path: Path) -> None:
    here = write_files(tmp_path, {"artifacts/a": b"1", "artifacts/b": b"2", "runs/c": b"3"})
    mirror("gs://bucket", here).store()
    # Lost there, lost here, and the ledger of a killed run.
    server.add_bucket("bucket").delete("artifacts/a")
    (here / "artifacts" / "b").unlink()
    assert mirror("gs://bucket", here).fetch() == 1
    mirror("gs://bucket", here).store()
    (here / ".mirror.json").unlink()
    server.counts.clear()
    again = mirror("gs://bucket", here)
    again.fetch()
    again.store()
    assert (server.counts["media"], server.counts["upload"]) == (0, 0)
    assert tree(here) == {"artifacts/a": b"1", "artifacts/b": b"2", "runs/c": b"3"}
    assert len(find_files("gs://bucket")) == 3


def test_overlapping_writes_are_refused(server: GcsServer, tmp_path: Path) -> None:
    first = mirror("gs://bucket", write_files(tmp_path / "one", {"runs/a": b"1"}))
    first.store()
    other = mirror("gs://bucket", tmp_path / "other")
    other.fetch()
    write_files(tmp_path / "other", {"runs/a": b"2"})
    other.store()
    write_files(tmp_path / "one", {"runs/a": b"3 of one"})
    with pytest.raises(StorageError, match="Another process has written to"):
        first.store()
    first.fetch()
    assert tree(tmp_path / "one") == {"runs/a": b"2"}


def test_files_are_stored_and_fetched_by_rank(server: GcsServer, tmp_path: Path) -> None:
    mirror("gs://bucket", a_run(tmp_path / "here")).store()
    last = ["pushed/7/variables/data", "pushed/7/saved_model.pb"]
    assert server.add_bucket("bucket").names()[-2:] == last
    mirror("gs://bucket", there := tmp_path / "there").fetch()
    times = {name: (there / name).stat().st_mtime_ns for name in tree(there)}
    assert sorted(times, key=lambda name: times[name])[-2:] == last


def test_objects_outside_the_folder_are_not_fetched(server: GcsServer, tmp_path: Path) -> None:
    for name in ("artifacts/../../evil", "artifacts//x", "artifacts/.hidden", "other/x", "runs/"):
        server.put("bucket", name, b"x")
    assert mirror("gs://bucket", tmp_path / "here").fetch() == 0
    assert tree(tmp_path) == {}


@pytest.mark.slow
def test_a_failing_store_is_named_with_the_cause(
    server: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three attempts, however long each takes.
    monkeypatch.setattr(retry, "RETRY_POLICY", RetryPolicy(first_pause=0.01, first_deadline=6))
    monkeypatch.setattr(retry, "_clock", itertools.count(step=1).__next__)
    server.fault_rates = {500: 1.0}
    with pytest.raises(StorageError, match=r"does not serve requests: HTTP status 500, \d times"):
        mirror("gs://bucket", tmp_path).fetch()
    server.fault_rates = {}
    with pytest.raises(StorageError, match="there is no bucket none"):
        mirror("gs://none", tmp_path).fetch()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setitem(fsspec.config.conf["gs"], "endpoint_url", address)
        with pytest.raises(StorageError, match=rf"{address} .*no connection"):
            mirror("gs://bucket", tmp_path).fetch()
