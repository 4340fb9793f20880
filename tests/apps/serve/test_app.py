"""The server over real connections, with a model that needs no TensorFlow."""

import base64
import contextlib
import io
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipeline_def.apps.serve import app, prediction
from pipeline_def.apps.serve.batching import BatchLimits
from pipeline_def.apps.serve.versions import Versions
from tests.apps.serve.fake_model import FakeModel, png
from tests.apps.serve.serving import PREDICT, ask, instances, running, serving
from tests.pictures import ADOBE_RGB, profile


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server with small limits, of a model as runs pushed them before."""
    options = {"max_request_mib": 1, "max_image_mpixels": 1, "max_images": 4, "timeout": 0.5}
    with serving(FakeModel("7"), tmp_path_factory.mktemp("pushed"), **options) as port:
        yield port


def test_the_rest_of_tensorflow_serving(port: int) -> None:
    status, answer = ask(port, body=instances(png(255), png(0, 255)))
    assert status == 200
    assert [row["label"] for row in answer["predictions"]] == ["255 0 0", "0 255 0"]
    by_columns = {"inputs": {"image_bytes": instances(png(255))["instances"]}}
    _, answer = ask(port, "/v1/models/images/versions/7:predict", by_columns)
    assert answer["outputs"]["probabilities"] == [[1, 0, 0]]
    _, answer = ask(port, body=instances(png(9), signature_name="explain"))
    assert answer == {"predictions": [{"b64": base64.b64encode(png(9)).decode()}]}
    for path in ("/v1/models/images", "/v1/models/images/versions/7"):
        _, answer = ask(port, path)
        [state] = answer["model_version_status"]
        assert (state["version"], state["state"]) == ("7", "AVAILABLE")
    _, answer = ask(port, "/v1/models/images/metadata")
    assert answer["model_spec"] == {"name": "images", "signature_name": "", "version": "7"}
    assert "serving_default" in answer["metadata"]["signature_def"]["signature_def"]


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/models/others", None, 404, "Servable not found for request: Latest(others)"),
        ("/v1/models/images/versions/8", None, 404, "Could not find version 8"),
        ("/v1/models/images/versions/8:predict", {}, 404, "Specific(images, 8)"),
        (PREDICT, None, 400, f"Malformed request: GET {PREDICT}"),
        ("/v1/models", None, 400, "Malformed request: GET /v1/models"),
        ("/v1/models/images:classify", {}, 400, "Malformed request"),
        ("/v1/models/..%2f..%2fetc", None, 400, "Malformed request"),
        ("/../../etc/passwd", None, 404, "Not Found"),
        ("/templates/page.html", None, 404, "Not Found"),
        (PREDICT, instances(png(1), signature_name="serving_examples"), 400, "not served"),
        (PREDICT, instances(png(1), b"x"), 400, "Instance 1: not an image"),
        (PREDICT, instances(png(1)[:-30]), 400, "Instance 0: cannot decode"),
        (PREDICT, instances(*[b"x"] * 5), 413, "5 images; at most 4 are allowed"),
        pytest.param(PREDICT, b" " * 2_000_000, 413, "exceeds the limit of 1 MiB", id="2 MB"),
    ],
)
def test_errors_are_those_of_tensorflow_serving(
    port: int, path: str, body: Any, status: int, says: str
) -> None:
    found, answer = ask(port, path, body)
    assert found == status
    assert says in answer["error"]
    assert answer.keys() == {"error"}


def _bomb(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("1", (20_000, 2_000)).save(buffer, kind)
    return buffer.getvalue()


def _many_scans() -> bytes:
    scans = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00\x00" * 1000
    return png(1, kind="JPEG")[:-2] + scans + b"\xff\xd9"


@pytest.mark.parametrize(
    ("file", "says"),
    [
        pytest.param(_bomb("PNG"), "too large: 20000 x 2000 pixels", id="PNG"),
        pytest.param(_many_scans(), "unsupported: JPEG: more than 60 scans", id="scans"),
        pytest.param(b"%!PS-Adobe-3.0 EPSF-3.0\n", "not an image: unknown", id="EPS runs programs"),
        pytest.param(b"", "not an image: the file is empty", id="empty"),
        pytest.param(b"/etc/passwd", "not an image", id="a path"),
    ],
)
def test_a_bomb_is_refused_by_its_header(port: int, file: bytes, says: str) -> None:
    status, answer = ask(port, body=instances(file))
    assert status == 400
    assert answer["error"].startswith(f"Instance 0: {says}")


def test_what_ingest_would_transcode_is_shown_as_ingest_shows_it(port: int) -> None:
    files = (png(200, 100, 50, kind=kind, lossless=True) for kind in ("WEBP", "TIFF", "GIF", "BMP"))
    _, answer = ask(port, body=instances(*files))
    assert [row["label"] for row in answer["predictions"]] == ["200 100 50"] * 4


def test_of_a_model_that_names_bad_images_the_others_are_answered(tmp_path: Path) -> None:
    with serving(FakeModel(says_errors=True), tmp_path, max_image_mpixels=1) as port:
        status, answer = ask(port, body=instances(png(1), b"x", _bomb("PNG"), png(2)[:-30]))
    assert status == 200
    rows = answer["predictions"]
    assert [row["label"] for row in rows] == ["1 0 0", "", "", ""]
    assert [row["error"].partition(":")[0] for row in rows] == [
        *("", "not an image", "too large", "no image")
    ]


def test_a_body_that_comes_too_slowly_is_refused_in_time(port: int) -> None:
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(3)
        client.sendall(f"{head}{{".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_a_model_that_takes_too_long_ends_in_time(tmp_path: Path) -> None:
    with serving(FakeModel(seconds=0.3), tmp_path, timeout=0.1) as port:
        assert ask(port, body=instances(png(1))) == (
            504,
            {"error": "No answer within 0.1 s. Send fewer images or retry."},
        )


def test_a_body_without_end_is_refused_while_it_comes(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(5)
        head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\n"
        client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 30_000_000:
                client.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
                sent += 0x10000
                client.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    if client.recv(4096).startswith(b"HTTP/1.1 413 "):
                        return
                client.settimeout(5)
    pytest.fail(f"took {sent} bytes")


def test_an_image_may_come_alone(port: int) -> None:
    headers: dict[str, Any] = {"Content-Type": "image/bmp"}
    status, answer = ask(port, body=png(13, 10, 45, kind="BMP"), **headers)
    assert (status, [row["label"] for row in answer["predictions"]]) == (200, ["13 10 45"])


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        (b"text", {"Content-Type": "image/png"}, 400, "Instance 0: not an image"),
        (b"\x1f\x8b", {"Content-Encoding": "gzip"}, 415, "Send the body uncompressed"),
    ],
)
def test_other_bodies_are_refused(
    port: int, body: bytes, headers: dict[str, Any], status: int, says: str
) -> None:
    found, answer = ask(port, body=body, **headers)
    assert (found, says in answer["error"]) == (status, True)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("192.168.1.7:8501", 200),
        ("[fe80::1]:8501", 200),
        ("model-server:8501", 200),
        ("models.default.svc.cluster.local", 200),
        ("models.example.com", 200),
        ("rebound.example.com:8501", 403),
        ("192.168.1.7.example.com", 403),
    ],
)
def test_a_server_for_others_accepts_names_that_nobody_can_register(
    tmp_path: Path, host: str, status: int
) -> None:
    options = {"host": "0.0.0.0", "hosts": "models.example.com, other.example.com"}
    with serving(FakeModel(), tmp_path, **options) as port:
        assert ask(port, "/v1/models/images", Host=host)[0] == status


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        pytest.param({"Host": "images.example.com"}, "host name", id="DNS rebinding"),
        pytest.param({"Origin": "https://example.com"}, "Cross-origin", id="another site"),
        pytest.param({"Origin": "http://localhost:1"}, "Cross-origin", id="another port"),
        pytest.param({"Origin": "null"}, "Cross-origin", id="a local file"),
        pytest.param({"Origin": "http://[::1"}, "Cross-origin", id="not a URL"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, "Cross-origin", id="a form without origin"),
    ],
)
def test_requests_by_pages_of_other_sites_are_refused(
    port: int, headers: dict[str, Any], says: str
) -> None:
    status, answer = ask(port, body=instances(png(1)), **headers)
    assert (status, says in answer["error"]) == (403, True)


def test_the_page_itself_may_ask(port: int) -> None:
    origin = f"http://127.0.0.1:{port}"
    assert ask(port, body=instances(png(1)), Origin=origin)[0] == 200


@pytest.mark.slow
def test_a_thousand_idle_connections_keep_nobody_out(tmp_path: Path) -> None:
    with serving(FakeModel(), tmp_path) as port, contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(1000)
        ]
        assert ask(port, body=instances(png(1)))[0] == 200
        idle[-1].sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[-1].recv(4096).startswith(b"HTTP/1.1 200 ")


def test_a_server_that_is_stopped_answers_what_it_has_been_asked(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as clients:
        with serving(model := FakeModel(seconds=0.2), tmp_path) as port:
            asked = clients.submit(ask, port, body=instances(png(1)))
            deadline = time.monotonic() + 10
            while not model.batches and time.monotonic() < deadline:
                time.sleep(0.005)
        assert asked.result()[0] == 200


def webp(side: int) -> bytes:
    """Return a file of a few bytes that takes three bytes per pixel when it is decoded."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (9, 8, 7)).save(buffer, "WEBP", lossless=True, method=0)
    return buffer.getvalue()


@pytest.mark.slow
def test_a_request_has_a_budget_of_pixels(tmp_path: Path) -> None:
    options = {"max_image_mpixels": 1, "max_request_mpixels": 2}
    with serving(model := FakeModel(), tmp_path, **options) as port:
        status, answer = ask(port, body=instances(*[webp(900)] * 3))
        assert status == 413
        assert "2 million pixels in total; at most 2 million" in answer["error"]
        status, answer = ask(port, body=instances(*[webp(900)] * 2))
    assert [row["label"] for row in answer["predictions"]] == ["9 8 7"] * 2
    assert sum(model.batches) == 2


def test_work_for_clients_that_hang_up_is_canceled_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "BatchLimits", lambda *_: BatchLimits(images=1))
    body = json.dumps(instances(png(1))).encode()
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with serving(model := FakeModel(seconds=0.1), tmp_path) as port:
        for sent in (head.encode() + body, head.encode() + body[:40]) * 10:
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(sent)
                time.sleep(0.005)
        assert ask(port, body=instances(png(2)))[0] == 200
    assert sum(model.batches) < 8
    assert [record for record in caplog.records if record.exc_info] == []


def test_each_version_sees_colors_as_its_run_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    colors = {"1": "stored", "2": "srgb"}
    monkeypatch.setattr(app, "find_color", lambda _, version: colors[version])
    pushed, file = tmp_path / "pushed", png(200, 100, 50, icc_profile=profile(ADOBE_RGB))
    for name in ("1", "2"):
        (pushed / name).mkdir(parents=True)
    (pushed / "1" / "saved_model.pb").touch()
    versions = Versions(str(pushed), lambda path: FakeModel(Path(path).name))
    with running(versions) as port:
        before = ask(port, body=instances(file))[1]["predictions"][0]["label"]
        versions.current = FakeModel("2")
        after = ask(port, body=instances(file))[1]["predictions"][0]["label"]
    assert before == "200 100 50" != after


def test_a_new_version_is_taken_up_and_requests_in_flight_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Versions, "poll_seconds", 0.05)
    pushed = tmp_path / "pushed"
    for name in ("1", "2"):
        (pushed / name).mkdir(parents=True)
    (pushed / "1" / "saved_model.pb").touch()
    models = {name: FakeModel(name, seconds=0.03) for name in ("1", "2")}
    versions = Versions(str(pushed), lambda path: models[Path(path).name])
    answers = []
    with running(versions) as port:
        (pushed / "2" / "saved_model.pb").touch()
        deadline = time.monotonic() + 10
        while versions.current.version == "1" and time.monotonic() < deadline:
            answers.append(ask(port, body=instances(png(1))))
        answers.append(ask(port, body=instances(png(1))))
    assert {status for status, _ in answers} == {200}
    assert {answer["predictions"][0]["label"] for _, answer in answers} == {"1 0 0"}
    assert min(len(model.batches) for model in models.values()) >= 1
