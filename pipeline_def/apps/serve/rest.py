"""The REST API of TensorFlow Serving: requests and responses in JSON, by row or by column.

Beside JSON, a request may be an image.

Source: https://www.tensorflow.org/tfx/serving/api_rest.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.predict.model import DEFAULT_SIGNATURE, INPUT
from pipeline_def.apps.serve.batching import Prediction
from pipeline_def.apps.serve.limits import RequestError

# A list of a million empty lists takes a hundred times the memory of its text. These characters do
# not occur in base64, so a request with images contains few of them.
_STRUCTURE = (b"[", b"{", b",")
_STRUCTURE_PER_IMAGE = 16


@dataclass(frozen=True)
class ImageRequest:
    """A parsed request of any protocol."""

    signature: str
    images: tuple[bytes, ...]
    """Image files."""

    def encode(self, rows: Sequence[Prediction], *, model: str, version: str) -> bytes:
        """Encode the predictions, output → value of each image, in the form of the request."""
        raise NotImplementedError


@dataclass(frozen=True)
class PredictRequest(ImageRequest):
    """A parsed request of this protocol."""

    by_rows: bool
    """Whether the response is a list of objects; otherwise it is an object of lists."""

    def encode(self, rows: Sequence[Prediction], *, model: str, version: str) -> bytes:
        """Encode the predictions; TensorFlow Serving does not name the model."""
        names = list(rows[0])
        plain = [{name: _to_plain(row[name], name) for name in names} for row in rows]
        if self.by_rows:
            values = plain if len(names) > 1 else [row[names[0]] for row in plain]
            return json.dumps({"predictions": values}).encode()
        columns = {name: [row[name] for row in plain] for name in names}
        return json.dumps({"outputs": columns if len(names) > 1 else columns[names[0]]}).encode()


def parse_request(
    body: bytes | bytearray, *, max_images: int, content_type: str = ""
) -> PredictRequest:
    """Parse the body of a request: JSON, or an image.

    Raises:
        RequestError: the body is not a valid request, or has too many images.
    """
    if content_type.strip().lower().startswith("image/"):
        return PredictRequest(DEFAULT_SIGNATURE, (bytes(body),), by_rows=True)
    fields = parse_object(body, max_images=max_images)
    signature = fields.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(signature, str):
        raise RequestError(400, "'signature_name' key must be a string value.")
    given = [key for key in ("instances", "inputs") if key in fields]
    if len(given) != 1:
        raise RequestError(
            400,
            "Expecting only one of 'inputs' or 'instances' keys."
            if given
            else "Missing 'inputs' or 'instances' key",
        )
    by_rows = given == ["instances"]
    values = _list_values(fields[given[0]], by_rows=by_rows)
    if len(values) > max_images:
        raise RequestError(
            413, f"The request has {len(values)} images; at most {max_images} are allowed."
        )
    images = tuple(_to_bytes(value, number) for number, value in enumerate(values))
    return PredictRequest(signature or DEFAULT_SIGNATURE, images, by_rows)


def parse_object(body: bytes | bytearray, *, max_images: int) -> Mapping[str, Any]:
    """Parse a JSON object with so many images at most.

    Raises:
        RequestError: it is not an object, or has too many values.
    """
    if sum(body.count(mark) for mark in _STRUCTURE) > _STRUCTURE_PER_IMAGE * (max_images + 1):
        raise RequestError(
            413, f"The request has too many values; at most {max_images} images are allowed."
        )
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"JSON Parse error: {error}") from error
    if not isinstance(fields, dict):
        raise RequestError(400, "Expected a JSON object.")
    return fields


def _list_values(values: Any, *, by_rows: bool) -> list[Any]:
    """Return the value of each image."""
    if not by_rows and isinstance(values, dict):
        values = _take_input(values)
    if not isinstance(values, list) or not values:
        key = "instances" if by_rows else "inputs"
        raise RequestError(400, f"Expecting '{key}' to be a list with at least one value.")
    return [_take_input(row) if _is_named(row) else row for row in values] if by_rows else values


def _is_named(row: Any) -> bool:
    return isinstance(row, dict) and row.keys() != {"b64"}


def _take_input(fields: Mapping[str, Any]) -> Any:
    if fields.keys() != {INPUT}:
        names = ", ".join(name[:40] for name in list(fields)[:5]) or "none"
        raise RequestError(400, f"Expecting one named input, {INPUT}, but found {names}.")
    return fields[INPUT]


def _to_bytes(value: Any, number: int) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        return decode_base64(value["b64"], number)
    raise RequestError(400, f"Instance {number} must be a string or an object with the key b64.")


def decode_base64(text: Any, number: int) -> bytes:
    """Decode the image with this number in its request.

    Raises:
        RequestError: the text is not base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise RequestError(400, f"Unable to base64 decode instance {number}: {error}.") from error


def _to_plain(value: Any, name: str) -> Any:
    """Convert bytes to text; to base64 in outputs whose name ends in `_bytes`."""
    if isinstance(value, list):
        return [_to_plain(item, name) for item in value] if _holds_bytes(value) else value
    if not isinstance(value, bytes):
        return value
    if name.endswith("_bytes"):
        return {"b64": base64.b64encode(value).decode()}
    return value.decode("utf-8", "replace")


def _holds_bytes(values: list[Any]) -> bool:
    while isinstance(values, list) and values:
        values = values[0]
    return isinstance(values, bytes)
