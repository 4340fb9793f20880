"""The Open Inference Protocol and the metrics, over real connections."""

import base64
import http.client
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.apps.serve.fake_model import FakeModel, png
from tests.apps.serve.serving import ask, instances, serving

INFER = "/v2/models/images/infer"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    options = {"max_images": 4, "max_request_mib": 1}
    with serving(FakeModel("7"), tmp_path_factory.mktemp("pushed"), **options) as port:
        yield port


def infer(*files: bytes, **fields: Any) -> dict[str, Any]:
    """Body of a request for files in base64."""
    data = [base64.b64encode(file).decode() for file in files]
    tensor = {"name": "image_bytes", "datatype": "BYTES", "shape": [len(data)], "data": data}
    return {"inputs": [tensor], **fields}


def binary(*files: bytes, **changes: Any) -> tuple[bytes, dict[str, Any]]:
    """Body and header of a request for files in binary."""
    data = b"".join(struct.pack("<I", len(file)) + file for file in files)
    tensor: dict[str, Any] = {"name": "image_bytes", "datatype": "BYTES", "shape": [len(files)]}
    tensor["parameters"] = {"binary_data_size": len(data)}
    text = json.dumps({"inputs": [tensor | changes.pop("tensor", {})], **changes}).encode()
    return text + data, {"Inference-Header-Content-Length": str(len(text))}


def test_images_in_base64_are_answered_by_tensor(port: int) -> None:
    status, answer = ask(port, INFER, infer(png(255), png(0, 255), id="a"))
    assert status == 200
    assert answer == {
        "model_name": "images",
        "model_version": "7",
        "id": "a",
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [2], "data": ["255 0 0", "0 255 0"]},
            {
                "name": "probabilities",
                "datatype": "FP32",
                "shape": [2, 3],
                "data": [1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
            },
        ],
    }
    chosen = infer(png(255), outputs=[{"name": "label"}])
    _, answer = ask(port, "/v2/models/images/versions/7/infer", chosen)
    assert [output["data"] for output in answer["outputs"]] == [["255 0 0"]]


def test_tensors_travel_in_binary(port: int) -> None:
    wanted = [
        {"name": "probabilities", "parameters": {"binary_data": True}},
        {"name": "label", "parameters": {"binary_data": True}},
    ]
    body, headers = binary(png(255), png(0, 0, 255), outputs=wanted)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", INFER, body, headers)
    answer = connection.getresponse()
    length = int(answer.headers["Inference-Header-Content-Length"])
    content = answer.read()
    connection.close()
    outputs = json.loads(content[:length])["outputs"]
    assert [output["parameters"]["binary_data_size"] for output in outputs] == [24, 22]
    values = np.frombuffer(content[length : length + 24], "<f4").reshape(outputs[0]["shape"])
    assert values.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert content[length + 24 :] == b"\7\0\0\x00255 0 0\7\0\0\x000 0 255"


def test_health_and_metadata(port: int) -> None:
    assert ask(port, "/v2/health/live") == (200, {"live": True})
    assert ask(port, "/v2/health/ready") == (200, {"ready": True})
    assert ask(port, "/v2/models/images/ready") == (200, {"name": "images", "ready": True})
    assert ask(port, "/v2")[1]["extensions"] == ["binary_tensor_data"]
    _, model = ask(port, "/v2/models/images/versions/7")
    assert (model["name"], model["versions"]) == ("images", ["7"])
    assert model["inputs"] == [{"name": "image_bytes", "datatype": "BYTES", "shape": [-1]}]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({}, 400, "Expecting 'inputs'"),
        ({"inputs": [{}]}, 400, "The name of the input must be image_bytes"),
        (infer(), 400, "has 1 to 4 images"),
        (infer(*[png(1)] * 5), 413, "has 1 to 4 images"),
        (infer(png(1)) | {"outputs": [{"name": "lable"}]}, 400, "no output 'lable'"),
        (infer(png(1)) | {"outputs": "label"}, 400, "Expecting 'outputs'"),
        (infer(png(1)) | {"parameters": []}, 200, ""),
        (infer(png(1)) | {"parameters": [1]}, 400, "must be an object"),
        (infer(png(1)) | {"parameters": {"signature_name": "x"}}, 400, "not found or not served"),
        (infer(b"text"), 400, "Instance 0: not an image"),
        (b"[]", 400, "Expected a JSON object"),
        (b"[" * 10_000, 413, "too many values"),
        (binary(png(1), tensor={"shape": [2]}), 400, "The shape of image_bytes is [2]"),
        (binary(png(1), tensor={"datatype": "UINT8"}), 400, "datatype of the input must be BYTES"),
        (binary(png(1), tensor={"parameters": {"binary_data_size": 3}}), 400, "is 3, but"),
        ((binary(png(1))[0], {"Inference-Header-Content-Length": "-1"}), 400, "length of the JSON"),
        ((binary(png(1))[0], {"Inference-Header-Content-Length": "9" * 99}), 400, "length of the"),
        (binary(*[b""] * 2000, tensor={"shape": [2000]}), 413, "has 1 to 4 images"),
    ],
)
def test_errors_are_sentences(port: int, body: Any, status: int, says: str) -> None:
    content, headers = body if isinstance(body, tuple) else (body, {})
    found, answer = ask(port, INFER, content, **headers)
    assert (found, says in answer.get("error", "")) == (status, True), answer


def test_an_element_cut_short_is_refused(port: int) -> None:
    body, headers = binary(png(1))
    cut = body.replace(struct.pack("<I", len(png(1))), struct.pack("<I", len(png(1)) + 1))
    assert "end within an element" in ask(port, INFER, cut, **headers)[1]["error"]


def test_metrics_count_what_was_asked(tmp_path: Path) -> None:
    model = FakeModel("7", says_errors=True)
    with serving(model, tmp_path) as port:
        ask(port, body=instances(png(1), b"x"))
        ask(port, INFER, infer(png(1)))
        ask(port, "/v1/models/none")
        ask(port, "/never/heard/of")
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/metrics", headers={"X-Request-ID": "a-1"})
        answer = connection.getresponse()
        assert answer.headers["X-Request-ID"] == "a-1"
        text = answer.read().decode()
        connection.request("GET", "/v2/health/live", headers={"X-Request-ID": "a 1"})
        answer = connection.getresponse()
        assert len(answer.headers["X-Request-ID"]) == 32
        connection.close()
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["images_requests_total", "200", "predict"] == 1
    assert found["images_requests_total", "200", "infer"] == 1
    assert found["images_requests_total", "404", "status"] == 1
    assert found["images_requests_total", "404", "other"] == 1
    assert found["images_answers_total", "7", "answered"] == 2
    assert found["images_answers_total", "7", "refused"] == 1
    assert found[("images_batch_size_sum",)] == 3
    assert found[("images_model_version",)] == 7
    assert found["images_request_seconds_count", "predict"] == 1
