import base64
import json
from typing import Any

import pytest

from pipeline_def.apps.serve.limits import RequestError
from pipeline_def.apps.serve.rest import PredictRequest, parse_request

B64 = {"b64": base64.b64encode(b"\x89x").decode()}


@pytest.mark.parametrize(
    ("body", "images", "by_rows"),
    [
        pytest.param({"instances": [{"image_bytes": B64}]}, 1, True, id="named"),
        pytest.param({"instances": [B64, B64]}, 2, True, id="a single input needs no name"),
        pytest.param({"inputs": {"image_bytes": [B64]}}, 1, False, id="columns"),
        pytest.param({"inputs": [B64, B64]}, 2, False, id="columns without a name"),
        pytest.param({"instances": [B64], "signature_name": ""}, 1, True, id="empty signature"),
    ],
)
def test_images_are_read_by_rows_and_by_columns(body: Any, images: int, by_rows: bool) -> None:
    question = parse_request(json.dumps(body).encode(), max_images=2)
    assert question.images == (b"\x89x",) * images
    assert (question.signature, question.by_rows) == ("serving_default", by_rows)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        pytest.param(b"", 400, "JSON Parse error", id="empty"),
        pytest.param(b"\xff\xfe\x00", 400, "JSON Parse error", id="no text"),
        pytest.param(b"{" * 40, 400, "JSON Parse error", id="no JSON"),
        pytest.param(b'{"instances": 1' + b"0" * 5000 + b"}", 400, "JSON Parse", id="digits"),
        pytest.param(b"[" * 200_000, 413, "too many values", id="nested"),
        pytest.param(b'{"instances":[' + b"[]," * 999 + b"[]]}", 413, "too many", id="many lists"),
        pytest.param(b"[]", 400, "JSON object", id="no object"),
        pytest.param(b"{}", 400, "Missing", id="nothing asked"),
        pytest.param(b'{"instances": [], "inputs": []}', 400, "only one", id="both"),
        pytest.param(b'{"instances": []}', 400, "at least one", id="no instance"),
        pytest.param(b'{"instances": {"b64": ""}}', 400, "list", id="no list"),
        pytest.param(b'{"inputs": {"x": []}}', 400, "image_bytes, but found x", id="unknown input"),
        pytest.param(b'{"instances": [3]}', 400, "Instance 0", id="number"),
        pytest.param(b'{"instances": [[""]]}', 400, "Instance 0", id="list in a list"),
        pytest.param(b'{"instances": [null]}', 400, "Instance 0", id="null"),
        pytest.param(b'{"instances": [{"b64": "%"}]}', 400, "base64", id="no base64"),
        pytest.param(b'{"instances": [{"b64": 5}]}', 400, "Instance 0", id="a number in base64"),
        pytest.param(b'{"instances": ["a", "b", "c"]}', 413, "3 images", id="too many images"),
        pytest.param(b'{"instances": ["a"], "signature_name": 5}', 400, "string", id="signature"),
    ],
)
def test_what_is_no_request_is_refused(body: bytes, status: int, says: str) -> None:
    with pytest.raises(RequestError, match=says) as refused:
        parse_request(body, max_images=2)
    assert refused.value.status == status


def test_answers_have_the_form_of_the_question() -> None:
    def encode(rows: list[dict[str, Any]], *, by_rows: bool) -> bytes:
        return PredictRequest("", (), by_rows).encode(rows, model="", version="")

    rows = [
        {"label": b"\xc3\xa9", "seen_bytes": b"\x00", "p": [0.5]},
        {"label": b"b", "seen_bytes": b"\x01", "p": [1.0]},
    ]
    first, second = json.loads(encode(rows, by_rows=True))["predictions"]
    assert first == {"label": "é", "seen_bytes": {"b64": "AA=="}, "p": [0.5]}
    columns = json.loads(encode(rows, by_rows=False))["outputs"]
    assert columns["label"] == ["é", "b"]
    assert columns["p"] == [first["p"], second["p"]]
    only = [{"label": b"a"}, {"label": b"b"}]
    assert json.loads(encode(only, by_rows=True)) == {"predictions": ["a", "b"]}
    assert json.loads(encode(only, by_rows=False)) == {"outputs": ["a", "b"]}
