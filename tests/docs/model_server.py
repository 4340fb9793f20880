"""A server that answers as TensorFlow Serving's documents say that it does, with a pushed model.

REST after https://www.tensorflow.org/tfx/serving/api_rest, gRPC after its own messages.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


@contextlib.contextmanager
def serving(saved_model: str, name: str) -> Iterator[tuple[int, int]]:
    """Serve a model as `name`; yield the ports of REST and of gRPC."""
    model = tf.saved_model.load(saved_model)
    ask = model.signatures["serving_default"]
    rest = ThreadingHTTPServer(("localhost", 0), _make_handler(ask, f"/v1/models/{name}:predict"))
    thread = Thread(target=rest.serve_forever)
    thread.start()
    server = grpc.server(ThreadPoolExecutor(1))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_Service(ask, name), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield rest.server_port, port
    finally:
        server.stop(grace=None)
        rest.shutdown()
        rest.server_close()
        thread.join()


class _Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers `Predict`."""

    def __init__(self, ask: Any, name: str) -> None:
        self._ask, self._name = ask, name

    def Predict(self, request: Any, context: grpc.ServicerContext) -> Any:
        assert request.model_spec.name == self._name
        inputs = {k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        for key, value in self._ask(**inputs).items():
            response.outputs[key].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return response


def _make_handler(ask: Any, path: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == path
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps({"predictions": _predict(ask, body["instances"])}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler


def _predict(ask: Any, instances: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answer a request by rows: bytes come as base64, texts and numbers go as they are."""
    names = instances[0].keys()
    inputs = {n: [base64.b64decode(row[n]["b64"]) for row in instances] for n in names}
    outputs = ask(**{name: tf.constant(values) for name, values in inputs.items()})
    columns = {name: value.numpy().tolist() for name, value in outputs.items()}
    return [
        {name: _plain(values[row]) for name, values in columns.items()}
        for row in range(len(instances))
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value
