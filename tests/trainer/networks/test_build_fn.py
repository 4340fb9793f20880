"""A network of the user: imported and checked; each mistake is one sentence."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.contract.errors import ConfigurationError
from components.trainer.config.model import ModelConfig
from components.trainer.networks.parts import save_backbone
from tests.trainer.networks.networks import CLASSES, IMAGES, build

NETWORKS = """
import tensorflow as tf
import tf_keras
from tf_keras import layers
from my_networks.pixels import scaled

def good(size, classes):
    images = layers.Input([size, size, 3], dtype="uint8")
    features = layers.Conv2D(4, 3, strides=4, name="first")(scaled(images))
    features = layers.Conv2D(6, 3, strides=4, name="second")(features)
    features = layers.GlobalMaxPooling2D()(features)
    features = layers.Dropout(0.1)(features)
    network = tf_keras.Model(images, layers.Dense(classes, name="classes")(features) * 2.0)
    network.compile(loss="mse")
    return network

class Subclass(tf_keras.Model):
    def __init__(self, classes):
        super().__init__()
        self.body = tf_keras.Sequential([layers.Flatten(), layers.Dense(classes)])

    @tf.autograph.experimental.do_not_convert
    def call(self, images, training=None):
        return self.body(scaled(images))

def whole(size, classes):
    return Subclass(classes)

def chain(size, classes):
    return tf_keras.Sequential([
        layers.Rescaling(1 / 255, input_shape=[size, size, 3]),
        tf_keras.Sequential([layers.Conv2D(4, 3, strides=4), layers.Flatten()]),
        layers.Dense(classes),
    ])

def beside(size, classes):
    images = layers.Input([size, size, 3], dtype="uint8")
    features = layers.Dense(2, kernel_regularizer="l2")(layers.Flatten()(scaled(images)))
    network = tf_keras.Model(images, layers.Dense(classes)(features))
    network.add_loss(tf.reduce_mean(features))
    return network

def flat(size, classes):
    return tf_keras.Sequential([layers.Flatten(), layers.Dense(3)])

def large(size, classes):
    return tf_keras.Sequential([layers.Flatten(input_shape=[224, 224, 3]), layers.Dense(classes)])

def softmax(size, classes):
    return tf_keras.Sequential([layers.Flatten(), layers.Dense(classes, "softmax")])

class Own(tf_keras.Model):
    def train_step(self, data):
        return {}

def stepping(size, classes):
    return Own()

def failing(size, classes):
    raise ZeroDivisionError("on purpose")

def nothing(size, classes):
    return {"a": 1}

"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder that the run is started in, with a package of the user."""
    package = tmp_path / "my_networks"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "networks.py").write_text(NETWORKS)
    (package / "pixels.py").write_text("def scaled(images):\n    return images / 255\n")
    (package / "broken.py").write_text("import my_networks.nowhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in [name for name in sys.modules if name.startswith("my_networks")]:
        del sys.modules[name]


def config(function: str, **more: Any) -> ModelConfig:
    return ModelConfig(build_fn=f"my_networks.{function}", **more)


# AutoGraph translates the call of a subclass, and Keras with it: that takes seconds.
@pytest.mark.slow
@pytest.mark.parametrize("function", ["good", "whole", "chain"])
def test_it_is_trained_as_a_whole(function: str, tmp_path: Path) -> None:
    model = build(config(f"networks.{function}"))
    logits = model(IMAGES)
    assert (logits.shape, logits.dtype) == ((4, CLASSES), "float32")
    assert model.trainable_weights
    assert not save_backbone(model, str(tmp_path / "backbone.npz"))
    assert not list(tmp_path.glob("*.npz"))
    with pytest.raises(ConfigurationError, match=r"replaces model.name and model.weights"):
        config(f"networks.{function}", weights="backbone.npz")


def test_no_loss_of_a_layer_is_lost() -> None:
    model = build(config("networks.beside"))
    model(IMAGES)
    assert len(model.losses) == 2


def test_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        build(config("networks.good"))
    assert "The loss that my_networks.networks.good compiles is ignored" in caplog.text
    assert "draws random numbers that no checkpoint stores" in caplog.text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("elsewhere.network", r"there is no module my_networks.elsewhere in "),
        ("broken.network", r"importing my_networks.broken failed with .*my_networks.nowhere"),
        ("networks.missing", r"module my_networks.networks has no function missing"),
        ("networks.failing", r"failing\(size=32, classes=5\) failed with ZeroDivisionError: on "),
        ("networks.nothing", r"it returned dict, but must return a model of tf_keras"),
        ("networks.stepping", r"overrides train_step, which training does not call: use add_loss"),
        ("networks.softmax", r"ends with softmax, but must return logits"),
        ("networks.flat", r"returns \[None, 3\], but must return logits \[None, 5\]"),
        ("networks.large", r"takes \[None, 224, 224, 3\], but .* uint8 \[None, 32, 32, 3\]"),
    ],
)
def test_a_mistake_is_one_sentence(function: str, message: str) -> None:
    path = f"my_networks.{function}"
    with pytest.raises(ConfigurationError, match=f"model.build_fn is '{path}': .*{message}"):
        build(config(function))
