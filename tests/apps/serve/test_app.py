"""The server over real connections, with a model that needs no TensorFlow."""

import base64
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipeline_def.apps.serve import prediction
from pipeline_def.apps.serve.batching import BatchLimits
from pipeline_def.apps.serve.versions import Versions
from tests.apps.serve.serving import PREDICT, FakeModel, ask, instances, png, push, running, serving
from tests.pictures import encode


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


BOMB = encode(Image.new("1", (20_000, 2_000)), "PNG")
SCANS = png(1, kind="JPEG")[:-2] + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00\x00" * 1000
SITE = "Cross-origin"


def case(status: int, says: str, body: Any = None, path: str = PREDICT, **headers: str) -> Any:
    """A request that is refused."""
    return pytest.param(path, body, headers, status, says, id=says)


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "says"),
    [
        # In the words of TensorFlow Serving.
        case(404, "Servable not found for request: Latest(others)", path="/v1/models/others"),
        case(404, "Could not find version 8", path="/v1/models/images/versions/8"),
        case(404, "Specific(images, 8)", {}, "/v1/models/images/versions/8:predict"),
        case(400, f"Malformed request: GET {PREDICT}"),
        case(400, "Malformed request: POST /v1/models/images:c", {}, "/v1/models/images:classify"),
        case(400, "Malformed request", path="/v1/models/..%2f..%2fetc"),
        case(404, "Not Found", path="/templates/page.html"),
        case(400, "not served", instances(png(1), signature_name="serving_examples")),
        case(400, "Instance 1: not an image", instances(png(1), b"x")),
        case(400, "Instance 0: cannot decode", instances(png(1)[:-30])),
        case(413, "5 images; at most 4 are allowed", instances(*[b"x"] * 5)),
        case(413, "exceeds the limit of 1 MiB", b" " * 2_000_000),
        # By the header of a file, which may be a bomb or a program.
        case(400, "Instance 0: too large: 20000 x 2000 pixels", instances(BOMB)),
        case(400, "Instance 0: unsupported: JPEG: more than", instances(SCANS + b"\xff\xd9")),
        case(400, "not an image: unknown", instances(b"%!PS-Adobe-3.0 EPSF-3.0\n")),
        case(400, "not an image: the file is empty", instances(b"")),
        case(400, "Instance 0: not an image", b"text", **{"Content-Type": "image/png"}),
        case(415, "Send the body uncompressed", b"\x1f\x8b", **{"Content-Encoding": "gzip"}),
        # By pages of other sites.
        case(403, "host name", instances(png(1)), Host="images.example.com"),
        *(
            case(403, SITE, instances(png(1)), Origin=origin)
            for origin in ("https://example.com", "http://localhost:1", "null", "http://[::1")
        ),
        case(403, SITE, instances(png(1)), **{"Sec-Fetch-Site": "cross-site"}),
    ],
)
def test_a_refused_request_gets_a_status_and_a_sentence(
    port: int, path: str, body: Any, headers: dict[str, Any], status: int, says: str
) -> None:
    answered, answer = ask(port, path, body, **headers)
    assert answered == status
    assert says in answer["error"]
    assert answer.keys() == {"error"}


def test_the_page_itself_may_ask(port: int) -> None:
    origin = f"http://127.0.0.1:{port}"
    assert ask(port, body=instances(png(1)), Origin=origin)[0] == 200


@pytest.mark.slow
def test_a_thousand_idle_connections_keep_nobody_out(tmp_path: Path) -> None:
    with serving(FakeModel(), tmp_path) as port, contextlib.ExitStack() as stack:
        for _ in range(1000):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert ask(port, body=instances(png(1)))[0] == 200
        idle.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_what_ingest_would_transcode_is_shown_as_ingest_shows_it(port: int) -> None:
    files = (png(200, 100, 50, kind=kind, lossless=True) for kind in ("WEBP", "TIFF", "GIF", "BMP"))
    _, answer = ask(port, body=instances(*files))
    assert [row["label"] for row in answer["predictions"]] == ["200 100 50"] * 4


def test_of_a_model_that_names_bad_images_the_others_are_answered(tmp_path: Path) -> None:
    with serving(FakeModel(says_errors=True), tmp_path, max_image_mpixels=1) as port:
        status, answer = ask(port, body=instances(png(1), b"x", BOMB, png(2)[:-30]))
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


def test_a_server_for_others_accepts_names_that_nobody_can_register(tmp_path: Path) -> None:
    options = {"host": "0.0.0.0", "hosts": "models.example.com, other.example.com"}
    with serving(FakeModel(), tmp_path, **options) as port:
        for host, status in {
            "192.168.1.7:8501": 200,
            "[fe80::1]:8501": 200,
            "model-server:8501": 200,
            "models.default.svc.cluster.local": 200,
            "models.example.com": 200,
            "rebound.example.com:8501": 403,
            "192.168.1.7.example.com": 403,
        }.items():
            assert ask(port, "/v1/models/images", Host=host)[0] == status, host


def test_a_server_that_is_stopped_answers_what_it_has_been_asked(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as clients:
        with serving(model := FakeModel(seconds=0.2), tmp_path) as port:
            asked = clients.submit(ask, port, body=instances(png(1)))
            deadline = time.monotonic() + 10
            while not model.batches and time.monotonic() < deadline:
                time.sleep(0.005)
        assert asked.result()[0] == 200


@pytest.mark.slow
def test_a_request_has_a_budget_of_pixels(tmp_path: Path) -> None:
    options = {"max_image_mpixels": 1, "max_request_mpixels": 2}
    # A few bytes, but three per pixel when it is decoded.
    webp = png(9, 8, 7, kind="WEBP", size=(900, 900), lossless=True, method=0)
    with serving(model := FakeModel(), tmp_path, **options) as port:
        status, answer = ask(port, body=instances(*[webp] * 3))
        assert status == 413
        assert "2 million pixels in total; at most 2 million" in answer["error"]
        status, answer = ask(port, body=instances(*[webp] * 2))
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


def test_a_new_version_is_taken_up_and_requests_in_flight_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Versions, "poll_seconds", 0.05)
    push(tmp_path, "1")
    push(tmp_path, "2", whole=False)
    models = {name: FakeModel(name, seconds=0.03) for name in ("1", "2")}
    versions = Versions(str(tmp_path), lambda path: models[Path(path).name])
    answers = []
    with running(versions) as port:
        push(tmp_path, "2")
        deadline = time.monotonic() + 10
        while versions.current.version == "1" and time.monotonic() < deadline:
            answers.append(ask(port, body=instances(png(1))))
        answers.append(ask(port, body=instances(png(1))))
    assert {status for status, _ in answers} == {200}
    assert {answer["predictions"][0]["label"] for _, answer in answers} == {"1 0 0"}
    assert min(len(model.batches) for model in models.values()) >= 1
