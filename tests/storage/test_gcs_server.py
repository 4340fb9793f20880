import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from benchmarks.gcs_server import Fault, GcsServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GcsServer]:
    """A server with an empty bucket `folder` on disk and an empty one, `memory`."""
    (tmp_path / "folder").mkdir()
    with GcsServer({"folder": tmp_path / "folder"}) as server:
        server.put("memory", "x", b"")
        yield server


def ask(server: GcsServer, target: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Send a request as it stands."""
    address = server.endpoint.removeprefix("http://")
    with closing(http.client.HTTPConnection(address)) as connection:
        connection.request("GET", target)
        response = connection.getresponse()
        return response.status, response.headers, response.read()


@pytest.mark.parametrize(
    "name", ["none", "../secret", "cat/../../secret", "/etc/passwd", "cat", "a\0b", "x" * 999]
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
