from pathlib import Path

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from components.trainer.export.signatures import write_warmup

SIZE = 16


def test_warmup_records_are_what_tensorflow_serving_reads(tmp_path: Path) -> None:
    write_warmup(str(tmp_path), [b"first", b"second"])
    # Path and message as in TensorFlow Serving's saved_model_warmup.cc.
    file = tmp_path / "assets.extra" / "tf_serving_warmup_requests"
    logs = [
        prediction_log_pb2.PredictionLog.FromString(record)
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator()
    ]
    assert [log.WhichOneof("log_type") for log in logs] == ["predict_log"] * 2
    requests = [log.predict_log.request for log in logs]
    assert {request.model_spec.signature_name for request in requests} == {"serving_default"}
    sent = [tf.make_ndarray(request.inputs["image_bytes"]).tolist() for request in requests]
    assert sent == [[b"first"], [b"first", b"second"]]
