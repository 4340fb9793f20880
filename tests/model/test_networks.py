from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras

from components.contract.errors import ModelError
from pipeline_def.config.model import ModelConfig
from pipeline_def.model.networks import build_model

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
STATISTICS: dict[str, Any] = {"mean": [120.0, 110, 100], "variance": [60.0**2, 50**2, 40**2]}


def build(config: ModelConfig, **statistics: Any) -> tf_keras.Model:
    tf_keras.utils.set_random_seed(0)
    return build_model(config, size=32, classes=5, **{**STATISTICS, **statistics})


def backbone(model: tf_keras.Model) -> tf_keras.Model:
    [found] = [layer for layer in model.layers if isinstance(layer, tf_keras.Model)]
    return found


def three_layers(
    *, input_shape: Any, include_top: bool, weights: str | None, pooling: str
) -> tf_keras.Model:
    """What Keras's MobileNetV2 is to us, in 20 ms instead of a second."""
    assert (include_top, pooling) == (False, "avg")
    layers = [
        tf_keras.layers.Conv2D(4, 3, strides=4, input_shape=input_shape),
        tf_keras.layers.BatchNormalization(momentum=0.999),
        tf_keras.layers.GlobalAveragePooling2D(),
    ]
    model = tf_keras.Sequential(layers)
    if weights:
        model.load_weights(weights)
    return model


@pytest.fixture(params=["three layers", pytest.param("MobileNetV2", marks=pytest.mark.slow)])
def mobilenet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModelConfig:
    """The configuration that takes MobileNetV2, or what stands in for it."""
    if request.param == "three layers":
        monkeypatch.setattr(tf_keras.applications, "MobileNetV2", three_layers)
    return ModelConfig(name="mobilenet_v2")


@pytest.mark.parametrize("name", ["cnn", pytest.param("mobilenet_v2", marks=pytest.mark.slow)])
def test_uint8_images_in_one_float32_logit_per_class_out(name: Any) -> None:
    model = build(ModelConfig(name=name))
    logits = model(IMAGES)
    assert (logits.shape, logits.dtype) == ((4, 5), "float32")
    assert model.input_spec[0].shape == (None, 32, 32, 3)


def assert_normalised(config: ModelConfig) -> None:
    dark, bright = IMAGES // 2, IMAGES // 2 + 100
    shifted = [value + 100 for value in STATISTICS["mean"]]
    of_dark, of_bright = build(config)(dark), build(config, mean=shifted)(bright)
    np.testing.assert_allclose(of_dark, of_bright, atol=1e-4)


def test_cnn_normalises_with_the_statistics_of_the_data() -> None:
    assert_normalised(ModelConfig(name="cnn"))


def test_mobilenet_normalises_with_the_statistics_of_the_data(mobilenet: ModelConfig) -> None:
    assert_normalised(mobilenet)


def test_batch_statistics_follow_a_short_training(mobilenet: ModelConfig) -> None:
    norms = [
        layer
        for layer in backbone(build(mobilenet)).layers
        if isinstance(layer, tf_keras.layers.BatchNormalization)
    ]
    assert {norm.momentum for norm in norms} == {0.9}


@pytest.mark.parametrize("content", [None, b"no weights"])
def test_weights_that_cannot_be_loaded_are_a_users_mistake(
    mobilenet: ModelConfig, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "weights.h5"
    if content:
        file.write_bytes(content)
    with pytest.raises(ModelError, match=r"Cannot load model.weights '.*weights.h5'"):
        build(replace(mobilenet, weights=str(file)))


def test_pretrained_weights_come_from_the_file(mobilenet: ModelConfig, tmp_path: Path) -> None:
    donor = backbone(build(mobilenet))
    file = str(tmp_path / "weights.h5")
    donor.save_weights(file)
    frozen = build(replace(mobilenet, weights=file))
    # They see the pixels they were trained on, whatever the mean of these is.
    tuned = build(replace(mobilenet, weights=file, fine_tune=True), mean=[0.0, 0, 0])
    np.testing.assert_array_equal(frozen(IMAGES), tuned(IMAGES))
    for model in (frozen, tuned):
        for ours, theirs in zip(backbone(model).get_weights(), donor.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    # The head alone has a kernel and a bias.
    assert len(frozen.trainable_weights) == 2 < len(tuned.trainable_weights)
