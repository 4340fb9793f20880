"""A gRPC server that answers `Predict` with a pushed model, as TensorFlow Serving does."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


class _Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, saved_model: str) -> None:
        self._model = tf.saved_model.load(saved_model)

    def Predict(self, request: Any, context: grpc.ServicerContext) -> Any:
        assert request.model_spec.name == "images"
        inputs = {k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        for key, value in self._model.signatures["serving_default"](**inputs).items():
            response.outputs[key].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return response


@contextlib.contextmanager
def serve_grpc(saved_model: str) -> Iterator[int]:
    """Serve a model as `images`; yield the port."""
    server = grpc.server(ThreadPoolExecutor(1))
    service = _Service(saved_model)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(grace=None)
