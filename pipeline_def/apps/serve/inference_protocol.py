"""The Open Inference Protocol v2 over REST, as KServe and Triton speak it.

Source: https://github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pydantic

from components.predict.model import DEFAULT_SIGNATURE, INPUT
from pipeline_def.apps.serve.batching import Prediction
from pipeline_def.apps.serve.limits import RequestError
from pipeline_def.apps.serve.rest import ImageRequest, decode_base64, parse_object

BINARY = "inference-header-content-length"
"""Header of requests with binary tensors, an extension of Triton."""

_DATATYPES = {"DT_STRING": "BYTES", "DT_FLOAT": "FP32", "DT_INT64": "INT64", "DT_BOOL": "BOOL"}


@dataclass(frozen=True)
class InferRequest(ImageRequest):
    """A parsed request of this protocol."""

    id: str | None = None
    outputs: tuple[str, ...] = ()
    """Names of the wanted outputs; none: all of them."""

    def encode(self, rows: Sequence[Prediction], *, model: str, version: str) -> bytes:
        """Encode the predictions.

        Raises:
            RequestError: the model has no output of this name.
        """
        wanted = self.outputs or tuple(rows[0])
        if unknown := [name for name in wanted if name not in rows[0]]:
            raise RequestError(
                400, f"The model has no output {unknown[0][:40]!r}; it has {', '.join(rows[0])}."
            )
        outputs = [_describe_values(name, [row[name] for row in rows]) for name in wanted]
        answer: dict[str, Any] = {"model_name": model, "model_version": version}
        answer["outputs"] = outputs
        if self.id is not None:
            answer["id"] = self.id
        return json.dumps(answer).encode()


class _Tensor(pydantic.BaseModel):
    name: Literal["image_bytes"]
    datatype: Literal["BYTES"]
    shape: list[int]
    data: list[Any]


class _Output(pydantic.BaseModel):
    name: str


class _Parameters(pydantic.BaseModel):
    signature_name: str | None = None


class _Body(pydantic.BaseModel):
    inputs: tuple[_Tensor]
    outputs: list[_Output] | None = None
    parameters: _Parameters | None = None
    id: str | None = None


def parse_infer(body: bytes | bytearray, *, max_images: int) -> InferRequest:
    """Parse a request with one input, `image_bytes`, of datatype BYTES and shape [images].

    JSON cannot hold bytes, so texts are base64, in a list or a list of lists of one.

    Raises:
        RequestError: the body is not a valid request, or has too many images.
    """
    try:
        asked = _Body.model_validate(parse_object(body, max_images=max_images))
    except pydantic.ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise RequestError(400, f"{place}: {problem['msg']}.") from None
    [tensor] = asked.inputs
    texts = (row[0] if isinstance(row, list) and len(row) == 1 else row for row in tensor.data)
    images = tuple(decode_base64(text, number) for number, text in enumerate(texts))
    if not 0 < len(images) <= max_images:
        raise RequestError(
            413 if images else 400, f"A request has 1 to {max_images} images; this one does not."
        )
    if tensor.shape not in ([len(images)], [len(images), 1]):
        raise RequestError(
            400, f"The shape of {INPUT} is {tensor.shape!r}, but it has {len(images)} elements."
        )
    signature = asked.parameters and asked.parameters.signature_name
    outputs = tuple(output.name for output in asked.outputs or ())
    return InferRequest(signature or DEFAULT_SIGNATURE, images, asked.id, outputs)


def _describe_values(name: str, values: list[Any]) -> dict[str, Any]:
    """Return name, datatype, shape and data of an output."""
    array = np.array(values)
    if array.dtype.kind == "S":
        # A fixed width would drop zero bytes at the end.
        array = np.array(values, dtype=object)
    kind = {"O": "BYTES", "f": "FP32", "i": "INT64", "b": "BOOL"}[array.dtype.kind]
    flat = array.ravel().tolist()
    data = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in flat]
    return {"name": name, "datatype": kind, "shape": list(array.shape), "data": data}


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
