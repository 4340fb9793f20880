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


@pytest.mark.parametrize("mirror", [False, True])
def test_an_image_and_its_mirror_image(mirror: bool) -> None:
    model = left_half()

    def transform(features: Any) -> dict[str, tf.Tensor]:
        return {ENCODED: tf.squeeze(features[ENCODED], 1)}

    signature = _make_signatures(
        model,
        transform,
        labels=[b"a", b"b", b"c"],
        raw_spec={},
        config=TransformConfig(size=SIZE, storage="png"),
        mirror=mirror,
    )["serving_default"]
    pixels = np.asarray(picture(2, height=SIZE, width=SIZE)).copy()
    pixels[:, SIZE // 2 :] = 0
    answers = []
    for image in (pixels, pixels[:, ::-1]):
        png = tf.io.encode_png(image).numpy()
        answers.append(signature(image_bytes=tf.constant([png]))["probabilities"].numpy())
    of_image, of_mirrored = answers
    assert np.allclose(of_image, of_mirrored, atol=1e-6) == mirror
    logits = model(np.stack([pixels, pixels[:, ::-1]])).numpy()
    expected = logits.mean(axis=0) if mirror else logits[0]
    np.testing.assert_allclose(of_image[0], tf.nn.softmax(expected), atol=1e-6)
