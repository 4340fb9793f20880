"""The Open Inference Protocol v2 over REST, as KServe and Triton speak it, with binary tensors.

Source: https://github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md,
and Triton's extension "binary tensor data".
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.predict.model import DEFAULT_SIGNATURE, INPUT
from pipeline_def.apps.serve.batching import Prediction
from pipeline_def.apps.serve.limits import RequestError
from pipeline_def.apps.serve.rest import ImageRequest, decode_base64, parse_object

JSON_LENGTH = "inference-header-content-length"
"""Header with the bytes of the JSON that binary tensors follow."""

_LENGTH = struct.Struct("<I")
_DATATYPES = {"DT_STRING": "BYTES", "DT_FLOAT": "FP32", "DT_INT64": "INT64", "DT_BOOL": "BOOL"}


@dataclass(frozen=True)
class InferRequest(ImageRequest):
    """A parsed request of this protocol."""

    id: str | None = None
    outputs: Mapping[str, bool] | None = None
    """Name of a wanted output → whether it is wanted in binary; None: all of them."""
    binary: bool = False
    """Whether outputs are wanted in binary if `outputs` does not say."""


def parse_infer(
    body: bytes | bytearray, json_length: str | None, *, max_images: int
) -> InferRequest:
    """Parse a request with one input, `image_bytes`, of datatype BYTES and shape [images].

    JSON cannot hold bytes, so texts are base64. Binary elements follow the JSON, each after its
    length in 4 bytes.

    Raises:
        RequestError: the body is not a valid request, or has too many images.
    """
    end = len(body)
    if json_length is not None:
        if not json_length.isdecimal() or int(json_length[:18]) > len(body):
            raise RequestError(
                400,
                f"{JSON_LENGTH} is {json_length[:40]!r}: it must be the length "
                "of the JSON in bytes.",
            )
        end = int(json_length)
    fields = parse_object(body[:end], max_images=max_images)
    tensor = _take_input(fields)
    parameters = _read_parameters(tensor)
    if (size := parameters.get("binary_data_size")) is not None:
        if size != len(body) - end:
            raise RequestError(
                400, f"binary_data_size is {size}, but {len(body) - end} bytes follow the JSON."
            )
        images = list(_split_elements(memoryview(body)[end:], max_images))
    else:
        images = _decode(tensor.get("data"))
    if not 0 < len(images) <= max_images:
        raise RequestError(
            413 if images else 400, f"A request has 1 to {max_images} images; this one does not."
        )
    shape = tensor.get("shape")
    if shape not in ([len(images)], [len(images), 1]):
        raise RequestError(
            400, f"The shape of {INPUT} is {shape!r}, but it has {len(images)} elements."
        )
    return _read_wishes(fields, tuple(images))


def _take_input(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    inputs = fields.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise RequestError(400, f"Expecting 'inputs' to be a list with one object, for {INPUT}.")
    tensor: Mapping[str, Any] = inputs[0]
    for name, wanted in (("name", INPUT), ("datatype", "BYTES")):
        if tensor.get(name) != wanted:
            raise RequestError(
                400,
                f"The {name} of the input must be {wanted}, but is {str(tensor.get(name))[:40]!r}.",
            )
    return tensor


def _read_parameters(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = fields.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise RequestError(400, "'parameters' must be an object.")
    return parameters


def _split_elements(data: memoryview, most: int) -> Iterator[bytes]:
    """Yield the elements of a binary tensor of bytes, at most one more than `most`."""
    start = 0
    for _ in range(most + 1):
        if start == len(data):
            return
        stop = start + _LENGTH.size
        if stop > len(data) or stop + (size := _LENGTH.unpack_from(data, start)[0]) > len(data):
            raise RequestError(400, f"The binary data of {INPUT} end within an element.")
        yield bytes(data[stop : stop + size])
        start = stop + size


def _decode(data: Any) -> list[bytes]:
    """Decode texts in base64, in a list or a list of lists of one."""
    if not isinstance(data, list):
        raise RequestError(400, f"The input {INPUT} has neither 'data' nor binary data.")
    texts = [row[0] if isinstance(row, list) and len(row) == 1 else row for row in data]
    return [decode_base64(text, number) for number, text in enumerate(texts)]


def _read_wishes(fields: Mapping[str, Any], images: tuple[bytes, ...]) -> InferRequest:
    """Read what the response should hold."""
    parameters, request_id = _read_parameters(fields), fields.get("id")
    signature = parameters.get("signature_name") or DEFAULT_SIGNATURE
    binary = parameters.get("binary_data_output") is True
    outputs = None
    if (wanted := fields.get("outputs")) is not None:
        if not isinstance(wanted, list) or not all(isinstance(output, dict) for output in wanted):
            raise RequestError(400, "Expecting 'outputs' to be a list of objects.")
        outputs = {
            str(output.get("name")): _read_parameters(output).get("binary_data", binary) is True
            for output in wanted
        }
    if not isinstance(signature, str) or not isinstance(request_id, str | None):
        raise RequestError(400, "'id' and 'signature_name' must be strings.")
    return InferRequest(signature, images, request_id, outputs, binary)


def encode_infer(
    request: InferRequest, rows: Sequence[Prediction], *, model: str, version: str
) -> tuple[bytes, int | None]:
    """Encode the predictions of a request; return the body, and the length of its JSON if binary.

    Raises:
        RequestError: the model has no output of this name.
    """
    wanted = request.outputs or dict.fromkeys(rows[0], request.binary)
    if unknown := [name for name in wanted if name not in rows[0]]:
        raise RequestError(
            400, f"The model has no output {unknown[0][:40]!r}; it has {', '.join(rows[0])}."
        )
    outputs, binary = [], []
    for name, is_binary in wanted.items():
        output, values = _describe_values(name, [row[name] for row in rows])
        if is_binary:
            data = _pack(values)
            output["parameters"] = {"binary_data_size": len(data)}
            binary.append(data)
        else:
            output["data"] = [_to_text(value) for value in values.ravel().tolist()]
        outputs.append(output)
    answer: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": outputs}
    if request.id is not None:
        answer["id"] = request.id
    text = json.dumps(answer).encode()
    return b"".join([text, *binary]), len(text) if binary else None


def _describe_values(name: str, values: list[Any]) -> tuple[dict[str, Any], Any]:
    """Return name, datatype and shape of an output, and its values as an array."""
    array = np.array(values)
    if array.dtype.kind == "S":
        # A fixed width would drop zero bytes at the end.
        array = np.array(values, dtype=object)
    kind = {"O": "BYTES", "f": "FP32", "i": "INT64", "b": "BOOL"}[array.dtype.kind]
    return {"name": name, "datatype": kind, "shape": list(array.shape)}, array


def _pack(values: Any) -> bytes:
    if values.dtype.kind != "O":
        kinds = {"f": "<f4", "i": "<i8", "b": "?"}
        return bytes(values.astype(kinds[values.dtype.kind]).tobytes())
    return b"".join(_LENGTH.pack(len(value)) + value for value in values.ravel())


def _to_text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def describe_model(name: str, version: str, signatures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a model, from the signatures of TensorFlow Serving's metadata."""
    signature = signatures[DEFAULT_SIGNATURE]
    return {
        "name": name,
        "versions": [version],
        "platform": "tensorflow_savedmodel",
        "inputs": [*_describe_tensors(signature["inputs"])],
        "outputs": [*_describe_tensors(signature["outputs"])],
    }


def _describe_tensors(tensors: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, tensor in sorted(tensors.items()):
        sizes = [int(dim["size"]) for dim in tensor.get("tensor_shape", {}).get("dim", ())]
        kind = _DATATYPES.get(tensor.get("dtype", ""), "BYTES")
        yield {"name": name, "datatype": kind, "shape": sizes or [-1]}
