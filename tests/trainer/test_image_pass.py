from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tf_keras import layers

from components.trainer.config.model import ModelConfig
from components.trainer.export.signatures import Classifier
from components.trainer.image_pass import describe_predictions, make_predict
from components.trainer.networks.networks import build_model
from components.trainer.networks.parts import Parts

SIZE, CLASSES = 8, 3
IMAGES = np.random.default_rng(1).integers(0, 256, (5, SIZE, SIZE, 3), np.uint8)
IDS = np.array([0, 1, 2, 1, -1])


def predict(model: Any) -> dict[str, Any]:
    outputs = make_predict(Classifier(model, temperature=2.0))(tf.constant(IMAGES))
    found = {name: value.numpy() for name, value in outputs.items()}
    return found | describe_predictions(found["probabilities"], IDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", "resnet9"])
def test_features_are_those_of_the_backbone(name: str) -> None:
    config = ModelConfig(name=name, width=4, dropout=0.5)
    pixels: dict[str, Any] = {"mean": [99.0] * 3, "variance": [999.0] * 3}
    model = build_model(config, size=SIZE, classes=CLASSES, **pixels)
    found = predict(model)
    features = Parts.of(model).backbone(IMAGES)
    np.testing.assert_allclose(found["embeddings"], features, rtol=1e-5, atol=1e-4)
    probabilities = tf.nn.softmax(model(IMAGES) / 2).numpy()
    np.testing.assert_array_equal(found["predicted"], probabilities.argmax(axis=1))
    np.testing.assert_allclose(found["probability"], probabilities.max(axis=1), rtol=1e-5)
    known = np.r_[IDS[:4], CLASSES]
    others = np.c_[probabilities, np.zeros(5)]
    others[np.arange(5), known] = 0
    np.testing.assert_array_equal(found["proposed"], others.argmax(axis=1))
    given = [*probabilities[np.arange(4), IDS[:4]], 0]
    np.testing.assert_allclose(found["given_probability"], given, rtol=1e-5)


class Subclassed(tf_keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.last = layers.Dense(4, "relu"), layers.Dense(CLASSES)

    # AutoGraph would take seconds.
    @tf.autograph.experimental.do_not_convert
    def call(self, images: Any, training: bool = False) -> Any:
        pixels = tf.reshape(tf.cast(images, tf.float32), [-1, SIZE * SIZE * 3])
        return self.last(self.hidden(pixels)) * 0.5


def wrap(network: Any) -> tf_keras.Model:
    images = layers.Input([SIZE, SIZE, 3], dtype="uint8")
    return tf_keras.Model(images, network(images))


def convolutional(images: Any) -> Any:
    features = layers.Conv2D(CLASSES, 3)(layers.Rescaling(1 / 255)(images))
    return layers.GlobalAveragePooling2D()(features)


def test_features_of_networks_of_users(caplog: pytest.LogCaptureFixture) -> None:
    network = Subclassed()
    found = predict(wrap(network))
    pixels = IMAGES.reshape(5, -1).astype(np.float32)
    np.testing.assert_allclose(found["embeddings"], network.hidden(pixels), rtol=1e-4, atol=1e-4)
    assert "embeddings" not in predict(wrap(convolutional))
    assert "no embeddings" in caplog.text
