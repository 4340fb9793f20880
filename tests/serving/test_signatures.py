from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.contract.example import ENCODED
from components.transform.config import TransformConfig
from pipeline_def.serving.signatures import _make_signatures
from tests.pictures import picture

SIZE = 16


def left_half() -> tf_keras.Model:
    """A model that looks at the left half of an image only."""
    images = tf_keras.layers.Input([SIZE, SIZE, 3], dtype=tf.uint8)
    seen = tf_keras.layers.Rescaling(1 / 255)(images[:, :, : SIZE // 2])
    answers = tf_keras.layers.Dense(3)(tf_keras.layers.GlobalAveragePooling2D()(seen))
    return tf_keras.Model(images, answers)


@pytest.mark.slow
def test_an_image_and_its_mirror_image() -> None:
    model = left_half()
    pixels = _half_of_a_picture()
    answers = [
        _ask(model, image, views=views) for views in (1, 2) for image in (pixels, pixels[:, ::-1])
    ]
    of_image, of_mirrored, mean, mean_of_mirrored = answers
    assert not np.allclose(of_image, of_mirrored, atol=1e-6)
    np.testing.assert_allclose(mean, mean_of_mirrored, atol=1e-6)
    logits = model(np.stack([pixels, pixels[:, ::-1]])).numpy()
    np.testing.assert_allclose(mean[0], tf.nn.softmax(logits.mean(axis=0)), atol=1e-6)


@pytest.mark.slow
def test_six_views_are_what_numpy_makes_of_the_image() -> None:
    model = left_half()
    pixels = _half_of_a_picture()
    padded = np.pad(pixels, [(1, 1), (1, 1), (0, 0)], mode="reflect")
    upright = [pixels, padded[:SIZE, :SIZE], padded[2:, 2:]]
    logits = model(np.stack([view for image in upright for view in (image, image[:, ::-1])]))
    expected = np.average(logits, axis=0, weights=[2, 2, 1, 1, 1, 1])
    np.testing.assert_allclose(_ask(model, pixels, views=6)[0], tf.nn.softmax(expected), atol=1e-6)


def _half_of_a_picture() -> Any:
    pixels = np.asarray(picture(2, height=SIZE, width=SIZE)).copy()
    pixels[:, SIZE // 2 :] = 0
    return pixels


def _ask(model: tf_keras.Model, image: Any, *, views: int) -> Any:
    def transform(features: Any) -> dict[str, tf.Tensor]:
        return {ENCODED: tf.squeeze(features[ENCODED], 1)}

    signature = _make_signatures(
        model,
        transform,
        labels=[b"a", b"b", b"c"],
        raw_spec={},
        config=TransformConfig(size=SIZE, storage="png"),
        views=views,
    )["serving_default"]
    png = tf.io.encode_png(image).numpy()
    return signature(image_bytes=tf.constant([png]))["probabilities"].numpy()
