import http.client
from contextlib import closing

import pytest

from benchmarks.gcs_server import Fault, GcsServer


def ask(server: GcsServer, target: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Send a request as it stands."""
    address = server.endpoint.removeprefix("http://")
    with closing(http.client.HTTPConnection(address)) as connection:
        connection.request("GET", target)
        response = connection.getresponse()
        return response.status, response.headers, response.read()


FAULTS: list[Fault] = [429, 503, "reset", "short", "corrupt"]


def test_injected_faults() -> None:
    with GcsServer() as server:
        check_faults(server)


def check_faults(server: GcsServer) -> None:
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
