from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tf_keras import layers

from components.trainer.config.model import ModelConfig
from components.trainer.image_pass import make_describe
from components.trainer.networks.networks import build_model
from components.trainer.networks.parts import Parts

SIZE, CLASSES = 8, 3
IMAGES = np.random.default_rng(1).integers(0, 256, (5, SIZE, SIZE, 3), np.uint8)
RANDOM = ModelConfig(name="cnn", width=4, weights="none")


def describe(model: Any, config: ModelConfig = RANDOM) -> Any:
    return make_describe(model, config)(tf.constant(IMAGES))


@pytest.mark.slow
def test_features_are_those_of_the_backbone() -> None:
    config = ModelConfig(name="resnet9", width=4, dropout=0.5)
    pixels: dict[str, Any] = {"mean": [99.0] * 3, "variance": [999.0] * 3}
    model = build_model(config, size=SIZE, classes=CLASSES, **pixels)
    features = Parts.of(model).backbone(IMAGES)
    np.testing.assert_allclose(describe(model), features, rtol=1e-5, atol=1e-4)


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
    pixels = IMAGES.reshape(5, -1).astype(np.float32)
    np.testing.assert_allclose(
        describe(wrap(network)), network.hidden(pixels), rtol=1e-4, atol=1e-4
    )
    assert describe(wrap(convolutional)) is None
    assert "no embeddings" in caplog.text


@pytest.mark.slow
def test_what_training_changes_leaves_features_of_pretrained_networks_alone() -> None:
    config = ModelConfig(name="efficientnet_lite0", weights="imagenet")
    first, second = (describe(wrap(convolutional), config).numpy() for _ in range(2))
    np.testing.assert_allclose(first, second, atol=1e-6)
    # Two sides, four depths, each of length 1.
    assert first.shape == (5, 2 * (112 + 192 + 320 + 1280))
    np.testing.assert_allclose((first**2).sum(axis=1), 8, rtol=1e-4)
