from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow_serving.apis import prediction_log_pb2

from components.contract.example import ENCODED
from components.images.options import TransformConfig
from components.trainer.export.signatures import Classifier, make_signatures, write_warmup
from tests.pictures import picture

SIZE = 16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("views", "weights"), [(1, [1]), (2, [1, 1]), (6, [2, 2, 1, 1, 1, 1])], ids=str
)
def test_predictions_are_the_mean_of_views(views: int, weights: list[int]) -> None:
    images = tf_keras.layers.Input([SIZE, SIZE, 3], dtype=tf.uint8)
    left = tf_keras.layers.Rescaling(1 / 255)(images[:, :, : SIZE // 2])
    logits = tf_keras.layers.Dense(3)(tf_keras.layers.GlobalAveragePooling2D()(left))
    model = tf_keras.Model(images, logits)
    pixels = np.asarray(picture(2, height=SIZE, width=SIZE)).copy()
    pixels[:, SIZE // 2 :] = 0
    padded = np.pad(pixels, [(1, 1), (1, 1), (0, 0)], mode="reflect")
    upright = [pixels, padded[:SIZE, :SIZE], padded[2:, 2:]]
    all_views = np.stack([view for image in upright for view in (image, image[:, ::-1])])
    expected = np.average(model(all_views[:views]), axis=0, weights=weights)
    found = _predict(Classifier(model, views, temperature=2.0), pixels)
    np.testing.assert_allclose(found, tf.nn.softmax(expected / 2.0), atol=1e-6)


def _predict(classifier: Classifier, image: Any) -> Any:
    def transform(features: Any) -> dict[str, tf.Tensor]:
        return {ENCODED: tf.squeeze(features[ENCODED], 1)}

    signature = make_signatures(
        classifier,
        transform,
        labels=[b"a", b"b", b"c"],
        raw_spec={},
        config=TransformConfig(size=SIZE, storage="png"),
    )["serving_default"]
    png = tf.io.encode_png(image).numpy()
    return signature(image_bytes=tf.constant([png]))["probabilities"].numpy()[0]


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
