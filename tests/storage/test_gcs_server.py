import http.client
import itertools
import json
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from hashlib import md5
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import fsspec
import fsspec.asyn
import pytest
from gcsfs.core import GCSFileSystem
from google.oauth2 import service_account

from benchmarks.gcs_server import Fault, GcsServer

NAMES = [
    "cat/1.jpg",
    "a b+c&d=e",
    "line\nbreak",
    "новый/фото.jpg",
    "100%2e.jpg",
    "-rf",
    "#1?",
    "{}",
    "..hidden/...",
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GcsServer]:
    """A server with an empty bucket `folder` on disk and an empty one, `memory`."""
    (tmp_path / "folder").mkdir()
    with GcsServer({"folder": tmp_path / "folder"}) as server:
        server.put("memory", "x", b"")
        yield server


@pytest.fixture
def fs(server: GcsServer) -> Iterator[Any]:
    """gcsfs, which needs its connections closed."""
    options = {"endpoint_url": server.endpoint, "token": "anon", "skip_instance_cache": True}
    fs = GCSFileSystem(use_listings_cache=False, **options)
    yield fs
    if fs.session:
        fsspec.asyn.sync(fs.loop, fs.session.close)


def ask(server: GcsServer, target: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Send a request as it stands."""
    address = server.endpoint.removeprefix("http://")
    with closing(http.client.HTTPConnection(address)) as connection:
        connection.request("GET", target)
        response = connection.getresponse()
        return response.status, response.headers, response.read()


def pages(server: GcsServer, **query: Any) -> Iterator[dict[str, Any]]:
    while True:
        page = json.loads(ask(server, f"/storage/v1/b/memory/o?{urlencode(query)}")[2])
        yield page
        if "nextPageToken" not in page:
            return
        query["pageToken"] = page["nextPageToken"]


@pytest.mark.parametrize("bucket", ["folder", "memory"])
def test_gcsfs_writes_reads_lists_and_removes(
    server: GcsServer, fs: Any, bucket: str, tmp_path: Path
) -> None:
    files = {f"{bucket}/{name}": name.encode() for name in NAMES}
    fs.pipe(files)
    (tmp_path / "empty").write_bytes(b"")
    fs.put_file(tmp_path / "empty", f"{bucket}/x")
    assert fs.cat(fs.find(bucket)) == files | {f"{bucket}/x": b""}

    details = fs.find(bucket, detail=True)
    assert list(details) == sorted(details) == sorted([*files, f"{bucket}/x"])
    info = fs.info(f"{bucket}/cat/1.jpg")
    assert info == details[f"{bucket}/cat/1.jpg"]
    assert (info["size"], info["metageneration"]) == (9, "1")
    assert info["md5Hash"] == b64encode(md5(b"cat/1.jpg").digest()).decode()
    assert abs(info["mtime"].timestamp() - time.time()) < 60
    assert fs.ls(f"{bucket}/cat") == [f"{bucket}/cat/1.jpg"]
    assert f"{bucket}/cat" in fs.ls(bucket)
    assert fs.isdir(f"{bucket}/cat")

    fs.cp_file(f"{bucket}/cat/1.jpg", f"{bucket}/dog/1.jpg")
    fs.merge(f"{bucket}/both", [f"{bucket}/cat/1.jpg", f"{bucket}/dog/1.jpg"])
    assert fs.cat_file(f"{bucket}/both") == b"cat/1.jpg" * 2
    fs.rm(bucket + "/cat", recursive=True)
    assert not fs.exists(f"{bucket}/cat/1.jpg")
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"{bucket}/cat/1.jpg")
    with pytest.raises(FileExistsError):
        fs.pipe_file(f"{bucket}/dog/1.jpg", b"", mode="create")


@pytest.mark.parametrize("limit", [1, 3, 1000])
@pytest.mark.parametrize("prefix", ["", "b/"])
@pytest.mark.parametrize("delimiter", ["", "/"])
def test_pages_hold_every_entry_once_in_order(
    server: GcsServer, limit: int, prefix: str, delimiter: str
) -> None:
    names = ["a", "b", "b/", "b/1", "b/c/1", "b/c/2", "b!", "b0", "é", "\uffff", "\U0001f600"]
    for name in names:
        server.put("memory", name, b"")
    rest = [name[len(prefix) :] for name in [*names, "x"] if name.startswith(prefix)]
    cut = [name.partition("/") if delimiter else (name, "", "") for name in rest]
    expected = {prefix + name + slash for name, slash, _ in cut}
    seen = list(pages(server, prefix=prefix, delimiter=delimiter, maxResults=limit))
    entries = [
        sorted([*(item["name"] for item in page.get("items", [])), *page.get("prefixes", [])])
        for page in seen
    ]
    assert all(len(page) == limit for page in entries[:-1])
    assert list(itertools.chain(*entries)) == sorted(expected, key=str.encode)


@pytest.mark.parametrize(
    "name", ["none", "../secret", "cat/../../secret", "..", "/etc/passwd", "cat", "a\0b", "x" * 999]
)
def test_only_files_of_the_folder_are_served(server: GcsServer, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    server.put("folder", "cat/1.jpg", b"")
    target = f"/storage/v1/b/folder/o/{quote(name, safe='')}"
    status, headers, body = ask(server, target)
    assert (status, headers["Content-Type"]) == (404, "application/json; charset=utf-8")
    assert json.loads(body)["error"]["errors"][0]["reason"] == "notFound"
    assert ask(server, f"{target}?alt=media")[0] == 404


FAULTS: list[Fault] = [429, 503, "reset", "short", "corrupt"]


def test_injected_faults(server: GcsServer) -> None:
    target = "/storage/v1/b/memory/o/y?alt=media"
    server.put("memory", "y", b"0123456789")
    server.faults["y"] = list(FAULTS)
    assert [ask(server, target)[0] for _ in range(2)] == [429, 503]
    with pytest.raises(ConnectionResetError):
        ask(server, target)
    with pytest.raises(http.client.IncompleteRead, match="5 bytes read, 5 more expected"):
        ask(server, target)
    status, headers, body = ask(server, target)
    assert (status, body) == (200, b"0123446789")
    good = ask(server, target)
    assert (good[1]["x-goog-hash"], good[2]) == (headers["x-goog-hash"], b"0123456789")
    assert server.counts == {"media": 6}

    server.fault_every = {3: 503}
    assert [ask(server, target)[0] for _ in range(6)] == [200, 200, 503] * 2


def test_beam_with_a_throw_away_key(
    server: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apache_beam.internal.gcp import auth
    from apache_beam.io.gcp import gcsio

    server.write_key(tmp_path / "key.json")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.endpoint)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    # Beam keeps the credentials of a process, and Google's library would look them up at Google.
    monkeypatch.setattr(auth._Credentials, "_credentials_init", False)
    monkeypatch.setattr(auth._Credentials, "_credentials", None)
    monkeypatch.setattr(
        service_account.Credentials, "_is_regional_access_boundary_lookup_required", lambda _: False
    )
    gcs = gcsio.GcsIO()
    with closing(gcs.client):
        with gcs.open("gs://folder/a b/1", "w") as file:
            file.write(b"one")
        copies = [("gs://folder/a b/1", "gs://folder/é"), ("gs://folder/none", "gs://folder/2")]
        assert [error for *_, error in gcs.copy_batch(copies)] == [None, 404]
        assert dict(gcs.list_files("gs://folder/")) == {
            "gs://folder/a b/1": 3,
            "gs://folder/é": 3,
        }
        assert gcs.open("gs://folder/é").read() == b"one"
        assert gcs.delete_batch(["gs://folder/a b/1"]) == [("gs://folder/a b/1", None)]
        assert not gcs.exists("gs://folder/a b/1")
        assert not gcs.is_soft_delete_enabled("gs://folder/")
    assert server.counts["token"] == 1
    assert server.counts["batch"] == 2


def test_process(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"here")
    command = [sys.executable, "-m", "benchmarks.gcs_server", "--folder", f"b={tmp_path}"]
    with subprocess.Popen([*command, "--latency-ms", "1"], stdout=subprocess.PIPE) as process:
        assert process.stdout
        server = GcsServer()
        server.endpoint = process.stdout.readline().decode().strip()
        try:
            assert ask(server, "/storage/v1/b/b/o/x?alt=media")[2] == b"here"
        finally:
            process.terminate()
        assert process.wait(10) == 0
