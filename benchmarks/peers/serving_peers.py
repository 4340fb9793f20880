"""Serves a SavedModel with another library: `serving_peers.py litserve|kserve MODEL PORT`.

Run by its path, with a Python that has the library and TensorFlow. Both answer the Open Inference
Protocol v2 with one input in base64; LitServe, which lacks it, at the same address.
"""

import base64
import sys
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

try:
    import litserve
except ImportError:
    litserve = None

_KINDS = {"O": "BYTES", "f": "FP32", "b": "BOOL"}
_PATH = "/v2/models/images/infer"


class Answerer:
    """The model, asked by images."""

    def __init__(self, folder: str) -> None:
        """Load the model."""
        # The signature lives as long as the model.
        self._model = tf.saved_model.load(folder)
        self._answer = self._model.signatures["serving_default"]

    def __call__(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the outputs of each image."""
        images = [base64.b64decode(text) for text in texts]
        found = self._answer(image_bytes=tf.constant(images))
        columns = {name: of.numpy() for name, of in found.items()}
        rows = range(len(images))
        return [{name: of[row : row + 1] for name, of in columns.items()} for row in rows]


class Api(litserve.LitAPI if litserve else object):  # type: ignore[misc]
    """What LitServe asks in its own process, in batches."""

    def __init__(self, folder: str) -> None:
        """Ask the model in a folder."""
        super().__init__(max_batch_size=64, batch_timeout=0.002, api_path=_PATH)
        self._folder = folder

    def setup(self, device: str) -> None:
        """Load the model."""
        self._answer = Answerer(self._folder)

    def decode_request(self, request: dict[str, Any]) -> str:
        """Return the text of the image."""
        return str(request["inputs"][0]["data"][0])

    def batch(self, inputs: list[str]) -> list[str]:
        """Return the batch."""
        return inputs

    def predict(self, x: list[str]) -> list[dict[str, Any]]:
        """Answer a batch."""
        return self._answer(x)

    def unbatch(self, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return an answer for each request."""
        return output

    def encode_response(self, output: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        outputs = [{"name": name, "data": _to_list(of)} for name, of in output.items()]
        return {"model_version": "1", "outputs": outputs}


def serve_litserve(folder: str, port: int) -> None:
    """Serve with LitServe, in batches."""
    server = litserve.LitServer(Api(folder), accelerator="cpu")
    server.run(host="127.0.0.1", port=port, generate_client_file=False, log_level="error")


def serve_kserve(folder: str, port: int) -> None:
    """Serve with KServe's own server."""
    import kserve

    answer = Answerer(folder)

    class Images(kserve.Model):
        def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
            [row] = answer(payload.inputs[0].data)
            outputs = [
                kserve.InferOutput(name, list(of.shape), _KINDS[of.dtype.kind], _to_list(of))
                for name, of in row.items()
            ]
            return kserve.InferResponse(payload.id or "-", "images", outputs, model_version="1")

    model = Images("images")
    model.ready = True
    kserve.ModelServer(http_port=port, enable_grpc=False).start([model])


def _to_list(values: Any) -> list[Any]:
    return [of.decode() if isinstance(of, bytes) else of for of in values.ravel().tolist()]


if __name__ == "__main__":
    kind, folder, port = sys.argv[1:]
    {"litserve": serve_litserve, "kserve": serve_kserve}[kind](folder, int(port))
