"""Heat maps show the decisive area, and depend on the weights.

The latter is the check of Adebayo et al. (2018), https://arxiv.org/abs/1810.03292: a method that
only finds the edges of an image draws the same with random weights.
"""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.trainer.config.model import ModelConfig
from components.trainer.export.explanation import draw_heat_maps, make_explain
from components.trainer.networks.networks import build_model

_TESTED = 24


def squares(count: int, size: int, side: int) -> tuple[Any, Any, Any]:
    """Return noise with a red or a blue square, the classes, and the top left of each square."""
    random = np.random.default_rng(count)
    images = random.integers(60, 180, (count, size, size, 3)).astype(np.uint8)
    classes = random.integers(0, 2, count)
    places = random.integers(2, size - side - 2, (count, 2))
    for image, kind, (top, left) in zip(images, classes, places, strict=True):
        image[top : top + side, left : left + side] = [[230, 40, 40], [40, 40, 230]][kind]
    return images, classes, places


def build(size: int, seed: int) -> tf_keras.Model:
    tf_keras.utils.set_random_seed(seed)
    config = ModelConfig(name="cnn", width=8)
    return build_model(config, size=size, classes=2, mean=[120] * 3, variance=[1500] * 3)


def compile_draw(model: tf_keras.Model) -> Any:
    function = tf.function(lambda *given: draw_heat_maps(model, *given), autograph=False)
    return lambda images, columns: function(images, tf.constant(columns, tf.int64)).numpy()


def around(heat: Any, place: Any, side: int, margin: int) -> Any:
    top, left = np.maximum(place - margin, 0)
    return heat[top : place[0] + side + margin, left : place[1] + side + margin]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "side"),
    [
        # Of eight by eight places, one is 4 or 8 pixels wide, and the heat is around the square.
        pytest.param(32, 5, id="a map before the last one"),
        pytest.param(64, 8, id="the last map"),
    ],
)
def test_the_heat_is_at_the_decisive_square(size: int, side: int) -> None:
    model = build(size, seed=0)
    images, classes, _ = squares(450, size, side)
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    model.fit(images, classes, epochs=4, batch_size=32, verbose=0)
    images, classes, places = squares(_TESTED, size, side)
    predicted = model.predict(images, verbose=0).argmax(axis=1)
    assert (predicted == classes).mean() > 0.95

    draw = compile_draw(model)
    heat = draw(images, predicted)
    margin = 2 if size == 32 else 5
    inside = [around(*pair, side, margin).sum() for pair in zip(heat, places, strict=True)]
    assert np.median(np.array(inside) / heat.sum(axis=(1, 2))) > 0.3
    peaks = [around(*pair, side, margin).max() for pair in zip(heat, places, strict=True)]
    assert np.mean(np.array(peaks) == 1) > 0.85

    for variable, other in zip(model.variables, build(size, seed=9).variables, strict=True):
        variable.assign(other)
    pairs = zip(heat, draw(images, predicted), strict=True)
    alike = [np.corrcoef(before.ravel(), other.ravel())[0, 1] for before, other in pairs]
    assert np.mean(alike) < 0.5


def test_a_model_without_feature_maps_has_no_heat_maps() -> None:
    images = tf_keras.layers.Input([4, 4, 3], dtype="uint8")
    shades = tf_keras.layers.Embedding(256, 2)(tf_keras.layers.Flatten()(images))
    logits = tf_keras.layers.Dense(2)(tf_keras.layers.Flatten()(shades))
    model = tf_keras.Model(images, logits)
    pixels = tf.zeros([4, 4, 3], tf.uint8)

    def see(files: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(
            lambda _: pixels, files, fn_output_signature=tf.TensorSpec([4, 4, 3], tf.uint8)
        )

    def predict(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        scores = model(see(image_bytes))
        return {"label": image_bytes, "error": image_bytes, "probabilities": scores}

    assert make_explain(model, see, predict) is None
