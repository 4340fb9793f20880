"""The networks of this repository, and properties of all networks."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.contract.errors import ConfigurationError, ModelError
from components.trainer.config.model import ModelConfig
from components.trainer.networks.layers import Whitening, build_resnet9
from components.trainer.networks.networks import precision
from components.trainer.networks.parts import Parts
from tests.trainer.networks.networks import (
    CLASSES,
    IMAGES,
    STATISTICS,
    build,
    generators,
    layers_of,
)

TINY = {"cnn": ModelConfig(name="cnn", width=4), "resnet9": ModelConfig(name="resnet9", width=4)}


def three_layers(
    *, input_shape: Any, include_top: bool, weights: str | None, pooling: str
) -> tf_keras.Model:
    """Stand in for Keras's MobileNetV2, in 20 ms instead of a second."""
    assert (include_top, pooling) == (False, "avg")
    if weights == "imagenet":
        raise Exception("URL fetch failure on https://storage/mobilenet.h5: None -- timed out")
    images = tf_keras.layers.Input(input_shape)
    features = tf_keras.layers.Conv2D(4, 3, strides=4, name="Conv1")(images)
    features = tf_keras.layers.BatchNormalization(momentum=0.999, name="bn_Conv1")(features)
    # EfficientNet's stochastic depth.
    features = tf_keras.layers.Dropout(0.2, noise_shape=(None, 1, 1, 1))(features)
    return tf_keras.Model(images, tf_keras.layers.GlobalAveragePooling2D()(features))


@pytest.fixture
def mobilenet(monkeypatch: pytest.MonkeyPatch) -> ModelConfig:
    """The configuration of MobileNetV2, with a stand-in."""
    monkeypatch.setattr(tf_keras.applications, "MobileNetV2", three_layers)
    return ModelConfig(name="mobilenet_v2")


@pytest.mark.slow
def test_networks_normalize_with_the_statistics_of_the_data(mobilenet: ModelConfig) -> None:
    dark, bright = IMAGES // 2, IMAGES // 2 + 100
    shifted = [value + 100 for value in STATISTICS["mean"]]
    for config in (mobilenet, TINY["cnn"]):
        of_dark, of_bright = build(config)(dark), build(config, mean=shifted)(bright)
        np.testing.assert_allclose(of_dark, of_bright, atol=1e-4)


def test_statistics_follow_a_short_training_and_dropout_resumes(mobilenet: ModelConfig) -> None:
    model, kind = build(mobilenet), tf_keras.layers.BatchNormalization
    norms = [layer for layer in layers_of(model) if isinstance(layer, kind)]
    assert ({layer.momentum for layer in norms}, generators(model)) == ({0.9}, [])


def test_a_failed_download_is_one_sentence(mobilenet: ModelConfig) -> None:
    config = ModelConfig(name="mobilenet_v2", weights="imagenet")
    with pytest.raises(ModelError, match=r"mobilenet_v2 cannot be downloaded .*timed out.*a file"):
        build(config)


def test_backbones_need_images_of_32_pixels() -> None:
    with pytest.raises(ConfigurationError, match=r"densenet121 needs .* 32 pixels.* have 31"):
        build(ModelConfig(name="densenet121"), size=31)


@pytest.mark.parametrize(("size", "smallest"), [(4, 1), (8, 1), (28, 3)])
def test_resnet9_takes_small_images_down_to_one_pixel(size: int, smallest: int) -> None:
    network = build_resnet9(size, 2, np.eye(12).tolist())
    assert network.get_layer("block_3_add").output_shape == (None, smallest, smallest, 8)
    assert np.isfinite(network(np.ones([2, size, size, 3], np.float32))).all()


@pytest.mark.slow
def test_the_head_of_resnet9_has_no_bias_and_divides_by_nine() -> None:
    parts = Parts.of(build(ModelConfig(name="resnet9", dropout=0)))
    features = np.random.default_rng(0).normal(size=(2, 256)).astype(np.float32)
    [kernel] = [layer.kernel for layer in parts.head.layers if layer.name == "logits"]
    np.testing.assert_allclose(parts.head(features), features @ kernel.numpy() / 9, rtol=1e-4)
    assert len(parts.head.weights) == 2, "a kernel without bias, and the calls of dropout"


@pytest.mark.slow
def test_logits_and_statistics_of_pixels_stay_float32_in_mixed_precision() -> None:
    with precision("bfloat16"):
        model = build(TINY["resnet9"])
    parts = Parts.of(model)
    convolution = next(layer for layer in layers_of(model) if layer.name == "whitening")
    assert convolution.compute_dtype == "bfloat16"
    logits = model(IMAGES)
    assert logits.shape == (4, CLASSES)
    assert parts.backbone(IMAGES).dtype == logits.dtype == tf.float32
    pixels = parts.backbone.get_layer("standardization")(IMAGES)
    expected = (IMAGES - np.array(STATISTICS["mean"])) / np.sqrt(STATISTICS["variance"])
    np.testing.assert_allclose(pixels, expected, rtol=1e-5, atol=1e-6)


def test_whitened_patches_are_independent_and_of_the_same_scale() -> None:
    random = np.random.default_rng(0)
    smooth = random.normal(size=[8, 12, 12, 3]).cumsum(axis=1).cumsum(axis=2).astype(np.float32)
    vectors = tf.reshape(
        tf.image.extract_patches(smooth, [1, 2, 2, 1], [1] * 4, [1] * 4, "VALID"), [-1, 12]
    )
    covariance = np.cov(vectors, rowvar=False)
    whitened = Whitening(covariance.tolist())(smooth)
    assert whitened.shape == [8, 11, 11, 24]
    after = np.cov(tf.reshape(whitened, [-1, 24])[:, :11], rowvar=False)
    np.testing.assert_allclose(after, np.eye(11), atol=0.05)
    np.testing.assert_allclose(whitened[..., :12], -whitened[..., 12:], atol=1e-5)


def test_convolutions_of_resnet9_start_as_identities() -> None:
    network = build_resnet9(8, 24, np.eye(12).tolist())
    convolution = network.get_layer("block_2_entry_conv")
    images = tf.random.stateless_uniform([2, 4, 4, 24], [0, 1])
    np.testing.assert_allclose(convolution(images)[..., :24], images, atol=1e-6)
