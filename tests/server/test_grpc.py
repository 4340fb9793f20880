"""The Open Inference Protocol over gRPC, with a real client."""

import contextlib
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from pipeline_def.local.server.command import bind
from pipeline_def.local.server.grpc_messages import make_messages
from tests.server.fake_model import FakeModel, png
from tests.server.serving import serving

SERVICE = "/inference.GRPCInferenceService"
_MESSAGES = make_messages()


class Client:
    """Calls the methods of the protocol."""

    def __init__(self, port: int) -> None:
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")

    def call(self, method: str, message: bytes | None = None, **fields: Any) -> tuple[Any, Any]:
        """Return the response, and its call; send `message` or one with `fields`."""
        answer = _MESSAGES[f"{method}Response"]
        call: Any = self.channel.unary_unary(f"{SERVICE}/{method}", None, answer.FromString)
        request = _MESSAGES[f"{method}Request"](**fields).SerializeToString()
        found = call.with_call(
            request if message is None else message, timeout=30, metadata=[("x-request-id", "a-1")]
        )
        return found[0], found[1]


@contextlib.contextmanager
def calling(folder: Path, model: FakeModel, **options: Any) -> Iterator[tuple[Client, int]]:
    """Serve a model; yield a client, and the port of REST."""
    with bind("127.0.0.1", 0, "grpc_port") as reserved:
        port = reserved.getsockname()[1]
        with serving(model, folder, grpc_port=port, **options) as rest:
            client = Client(port)
            # It does not listen yet, and clients would be refused.
            grpc.channel_ready_future(client.channel).result(10)
            # It closes with the client: a response that has arrived may still have to be read.
            yield client, rest


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    options = {"max_images": 4, "max_request_mib": 1, "timeout": 0.5, "max_image_mpixels": 1}
    folder = tmp_path_factory.mktemp("pushed")
    with calling(folder, FakeModel("7"), **options) as (client, _):
        yield client


def infer(*files: bytes, raw: bool = True, **fields: Any) -> dict[str, Any]:
    """Fields of a request for files."""
    tensor: dict[str, Any] = {"name": "image_bytes", "datatype": "BYTES", "shape": [len(files)]}
    if raw:
        data = b"".join(struct.pack("<I", len(file)) + file for file in files)
        fields = {"raw_input_contents": [data], **fields}
    else:
        tensor["contents"] = {"bytes_contents": files}
    return {"model_name": "images", "inputs": [tensor | fields.pop("tensor", {})], **fields}


def test_images_are_answered_as_they_were_sent(client: Client) -> None:
    answer, call = client.call("ModelInfer", **infer(png(255), png(0, 0, 255), id="a"))
    assert (answer.model_name, answer.model_version, answer.id) == ("images", "7", "a")
    shapes = [(one.name, one.datatype, [*one.shape]) for one in answer.outputs]
    assert shapes == [("label", "BYTES", [2]), ("probabilities", "FP32", [2, 3])]
    labels, scores = answer.raw_output_contents
    assert labels == b"\7\0\0\x00255 0 0\7\0\0\x000 0 255"
    assert np.frombuffer(scores, "<f4").tolist() == [1, 0, 0, 0, 0, 1]
    assert dict(call.trailing_metadata()) == {"x-request-id": "a-1"}

    fields = infer(png(255), raw=False, model_version="7", outputs=[{"name": "probabilities"}])
    answer, _ = client.call("ModelInfer", **fields)
    assert [[*one.contents.fp32_contents] for one in answer.outputs] == [[1, 0, 0]]
    signature = {"key": "signature_name", "value": {"string_param": "explain"}}
    answer, _ = client.call("ModelInfer", **infer(png(9), raw=False, parameters=[signature]))
    assert [*answer.outputs[0].contents.bytes_contents] == [png(9)]


def test_the_bytes_are_those_of_the_protocol(client: Client) -> None:
    """Written as tritonclient 2.73 writes them: our own classes could be wrong on both sides."""
    file = png(255)
    tensor = b"\n\x0bimage_bytes\x12\x05BYTES\x1a\x01\x01"
    raw = struct.pack("<I", len(file)) + file
    request = b"\n\x06images\x1a\x01a*%c%b2\x07\n\x05label:%c%b" % (
        *(len(tensor), tensor),
        *(len(raw), raw),
    )
    answer, _ = client.call("ModelInfer", request)
    assert answer.SerializeToString() == (
        b"\n\x06images\x12\x017\x1a\x01a*\x11\n\x05label\x12\x05BYTES\x1a\x01\x01"
        b"2\x0b\7\0\0\x00255 0 0"
    )


def test_health_and_metadata(client: Client) -> None:
    assert client.call("ServerLive")[0].live
    assert client.call("ServerReady")[0].ready
    ready, _ = client.call("ModelReady", name="images", version="7")
    assert ready.SerializeToString() == b"\x08\1"
    assert client.call("ServerMetadata")[0].name == "tfx-image-pipeline"
    model, _ = client.call("ModelMetadata", name="images")
    assert (model.name, [*model.versions]) == ("images", ["7"])
    assert [(one.name, one.datatype, [*one.shape]) for one in model.inputs] == [
        ("image_bytes", "BYTES", [-1])
    ]


@pytest.mark.parametrize(
    ("method", "fields", "code", "says"),
    [
        ("ModelReady", {"name": "others"}, "NOT_FOUND", "Latest(others)"),
        ("ModelInfer", infer(png(1), model_version="8"), "NOT_FOUND", "Specific(images, 8)"),
        ("ModelInfer", infer(b"x"), "INVALID_ARGUMENT", "Instance 0: not an image"),
        ("ModelInfer", infer(*[png(1)] * 5), "RESOURCE_EXHAUSTED", "has 1 to 4 images"),
        ("ModelInfer", infer(), "INVALID_ARGUMENT", "has 1 to 4 images"),
        ("ModelInfer", infer(b"x" * 2**20), "RESOURCE_EXHAUSTED", "larger than max"),
        ("ModelInfer", infer(png(1), tensor={"name": "x"}), "INVALID_ARGUMENT", "must be image_b"),
        ("ModelInfer", infer(png(1), tensor={"shape": [2]}), "INVALID_ARGUMENT", "is [2], but"),
        ("ModelInfer", infer(png(1), tensor={"shape": [1] * 70_000}), "RESOURCE_EXHAUSTED", "many"),
        ("ModelInfer", infer(png(1), raw_input_contents=[b""] * 2), "INVALID_ARGUMENT", "one elem"),
        ("ModelInfer", infer(raw=False, inputs=[{}] * 40_000), "RESOURCE_EXHAUSTED", "too many"),
        ("ModelInfer", {"message": b"\x0a\xff"}, "INVALID_ARGUMENT", "cut off"),
        ("ModelInfer", {"message": b"\x0a\x01\xff"}, "INVALID_ARGUMENT", "not a ModelInferRequest"),
        ("ModelReady", {"message": b"\x0f"}, "INVALID_ARGUMENT", "cut off"),
    ],
)
def test_errors_are_sentences(
    client: Client, method: str, fields: dict[str, Any], code: str, says: str
) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        client.call(method, **fields)
    error: Any = raised.value
    assert (error.code().name, says in error.details()) == (code, True), error.details()


@pytest.mark.slow
def test_who_sends_nothing_is_told_so_in_time(client: Client) -> None:
    done = threading.Event()

    def send() -> Iterator[bytes]:
        done.wait(10)
        yield from ()

    call: Any = client.channel.stream_unary(f"{SERVICE}/ServerLive")
    with pytest.raises(grpc.RpcError) as raised:
        call(send())
    done.set()
    error: Any = raised.value
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert error.details() == "The request did not arrive within 0.5 s."


@pytest.mark.slow
def test_calls_in_progress_are_counted_and_answered_at_the_end(tmp_path: Path) -> None:
    model = FakeModel(seconds=0.3)
    with ThreadPoolExecutor(1) as clients:
        with calling(tmp_path, model) as (client, port):
            asked = clients.submit(client.call, "ModelInfer", **infer(png(1)))
            deadline = time.monotonic() + 10
            while not model.batches and time.monotonic() < deadline:
                time.sleep(0.005)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as metrics:
                assert b"images_open_requests 2.0" in metrics.read()
        assert asked.result()[0].raw_output_contents
