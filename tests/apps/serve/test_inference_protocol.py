"""The Open Inference Protocol and the metrics, over real connections."""

import base64
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.apps.serve.serving import FakeModel, ask, instances, png, serving

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


TENSOR = infer(png(1))["inputs"][0]


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


def test_health_and_metadata(port: int) -> None:
    assert ask(port, "/v2/health/live") == (200, {"live": True})
    assert ask(port, "/v2/health/ready") == (200, {"ready": True})
    assert ask(port, "/v2/models/images/ready") == (200, {"name": "images", "ready": True})
    assert ask(port, "/v2")[1]["extensions"] == []
    _, model = ask(port, "/v2/models/images/versions/7")
    assert (model["name"], model["versions"]) == ("images", ["7"])
    assert model["inputs"] == [{"name": "image_bytes", "datatype": "BYTES", "shape": [-1]}]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({}, 400, "inputs: Field required."),
        ({"inputs": [{}]}, 400, "inputs.0.name: Field required."),
        (infer(), 400, "has 1 to 4 images"),
        (infer(*[png(1)] * 5), 413, "has 1 to 4 images"),
        (infer(png(1)) | {"outputs": [{"name": "lable"}]}, 400, "no output 'lable'"),
        (infer(png(1)) | {"outputs": "label"}, 400, "outputs: Input should be a valid list."),
        (infer(png(1)) | {"parameters": {}}, 200, ""),
        (infer(png(1)) | {"parameters": [1]}, 400, "parameters: Input should be a valid dict"),
        (infer(png(1)) | {"parameters": {"signature_name": "x"}}, 400, "not found or not served"),
        (infer(b"text"), 400, "Instance 0: not an image"),
        (b"[]", 400, "Expected a JSON object"),
        ({"inputs": [{**TENSOR, "shape": [2]}]}, 400, "The shape of image_bytes is [2]"),
        ({"inputs": [{**TENSOR, "datatype": "UINT8"}]}, 400, "datatype: Input should be 'BYTES'"),
        ({"inputs": [{**TENSOR, "data": None}]}, 400, "data: Input should be a valid list"),
    ],
)
def test_errors_are_sentences(port: int, body: Any, status: int, says: str) -> None:
    answered, answer = ask(port, INFER, body)
    assert (answered, says in answer.get("error", "")) == (status, True), answer


def test_binary_tensors_are_refused(port: int) -> None:
    headers: dict[str, Any] = {"Inference-Header-Content-Length": "10"}
    _, answer = ask(port, INFER, b'{"inputs":' + png(1), **headers)
    assert answer["error"] == "Send images as 'data' in base64, not as binary tensors."


def test_metrics_count_what_was_asked(tmp_path: Path) -> None:
    model = FakeModel("7", says_errors=True)
    with serving(model, tmp_path) as port:
        ask(port, body=instances(png(1), b"x"))
        ask(port, INFER, infer(png(1)))
        ask(port, body=instances(png(1), signature_name="explain"))
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
    values = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    for status, route, count in (
        ("200", "predict", 2),
        ("200", "infer", 1),
        ("404", "status", 1),
        ("404", "other", 1),
    ):
        assert values["images_request_seconds_count", status, route] == count
    assert values["images_answers_total", "7", "answered"] == 2, "heat maps are no answers"
    assert values["images_answers_total", "7", "refused"] == 1
