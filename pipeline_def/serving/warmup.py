"""Requests that TensorFlow Serving answers for itself before it serves a model to others.

Source: https://www.tensorflow.org/tfx/serving/saved_model_warmup.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import tensorflow as tf

WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
"""Its path below a SavedModel."""


def write_warmup(saved_model: str, images: Sequence[bytes]) -> None:
    """Write two requests: one image, and all of them.

    Args:
        saved_model: path or URL of a model with `serving_default`.
        images: files, one at least.
    """
    # Loads gRPC's messages, which nothing else of an export needs.
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    path = os.path.join(saved_model, WARMUP_FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.TFRecordWriter(path) as writer:
        for some in (images[:1], images):
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = "serving_default"
            request.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto([*some]))
            log = prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)
            )
            writer.write(log.SerializeToString(deterministic=True))
