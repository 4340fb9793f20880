from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras

from components.contract.errors import UserError
from pipeline_def.config.model import ModelConfig
from pipeline_def.model.networks import build_model

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
STATISTICS: dict[str, Any] = {"mean": [120.0, 110, 100], "variance": [60.0**2, 50**2, 40**2]}


def build(config: ModelConfig, **statistics: Any) -> tf_keras.Model:
    tf_keras.utils.set_random_seed(0)
    return build_model(config, size=32, classes=5, **{**STATISTICS, **statistics})


@pytest.mark.parametrize("name", ["cnn", "mobilenet_v2"])
def test_uint8_images_in_one_float32_logit_per_class_out(name: Any) -> None:
    model = build(ModelConfig(name=name))
    logits = model(IMAGES)
    assert (logits.shape, logits.dtype) == ((4, 5), "float32")
    assert model.input_spec[0].shape == (None, 32, 32, 3)


@pytest.mark.parametrize("name", ["cnn", "mobilenet_v2"])
def test_the_model_normalises_with_the_statistics_of_the_data(name: Any) -> None:
    dark, bright = IMAGES // 2, IMAGES // 2 + 100
    shifted = [value + 100 for value in STATISTICS["mean"]]
    of_dark = build(ModelConfig(name=name))(dark)
    of_bright = build(ModelConfig(name=name), mean=shifted)(bright)
    np.testing.assert_allclose(of_dark, of_bright, atol=1e-4)


@pytest.mark.parametrize("content", [None, b"no weights"])
def test_weights_that_cannot_be_loaded_are_a_users_mistake(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "weights.h5"
    if content:
        file.write_bytes(content)
    with pytest.raises(UserError, match=r"Cannot load model.weights '.*weights.h5'"):
        build(ModelConfig(name="mobilenet_v2", weights=str(file)))


def backbone(model: tf_keras.Model) -> tf_keras.Model:
    [found] = [layer for layer in model.layers if isinstance(layer, tf_keras.Model)]
    return found


@pytest.mark.parametrize("fine_tune", [False, True])
def test_pretrained_weights_come_from_the_file(tmp_path: Path, fine_tune: bool) -> None:
    file = str(tmp_path / "weights.h5")
    tf_keras.utils.set_random_seed(1)
    donor = tf_keras.applications.MobileNetV2(
        input_shape=(32, 32, 3), include_top=False, weights=None
    )
    donor.save_weights(file)
    model = build(ModelConfig(name="mobilenet_v2", weights=file, fine_tune=fine_tune))
    for ours, theirs in zip(backbone(model).get_weights(), donor.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # The head alone has a kernel and a bias.
    assert (len(model.trainable_weights) == 2) is not fine_tune


def test_pretrained_weights_see_the_pixels_they_were_trained_on(tmp_path: Path) -> None:
    file = str(tmp_path / "weights.h5")
    build(ModelConfig(name="mobilenet_v2"))
    tf_keras.applications.MobileNetV2(
        input_shape=(32, 32, 3), include_top=False, weights=None
    ).save_weights(file)
    config = ModelConfig(name="mobilenet_v2", weights=file)
    first = build(config)(IMAGES)
    np.testing.assert_array_equal(first, build(config, mean=[0.0, 0, 0])(IMAGES))
