"""Small versions: converted, run by LiteRT's interpreter, and measured."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.contract.example import ENCODED, FILENAME
from components.evaluation.lite_measurement import measure_lite
from components.evaluation.metrics.predictions import Evaluated, Predictions
from components.evaluation.verdict import read_lite_results, write_lite_results
from components.records.shard_files import open_shard, shard_path, write_index
from components.records.tfrecord import serialize
from components.transform.config import TransformConfig
from pipeline_def.serving.lite import export_lite
from pipeline_def.serving.signatures import Classifier
from tests.pictures import COLOURS, encode, picture

SIZE = 16
CONFIG = TransformConfig(size=SIZE, storage="png")
KINDS: Any = ["float16", "dynamic", "int8"]
IMAGES = 24


def network(*, odd: bool = False) -> tf_keras.Model:
    """Return a model whose logits are the mean blue, green and red; `odd`: LiteRT cannot run it."""
    images = tf_keras.layers.Input([SIZE, SIZE, 3], dtype=tf.uint8)
    pixels = tf_keras.layers.Rescaling(1 / 32)(images)
    convolved = tf_keras.layers.Conv2D(3, 1, kernel_initializer=_reversed, use_bias=False)(pixels)
    means = tf_keras.layers.GlobalAveragePooling2D()(convolved)
    return tf_keras.Model(images, tf.math.lgamma(means) if odd else means)


def _reversed(shape: Any, dtype: Any = None) -> tf.Tensor:
    return tf.reshape(tf.reverse(tf.eye(3), [1]), shape)


def pixels_of(number: int) -> Any:
    colour = list(COLOURS)[number % 3]
    return np.asarray(picture(number, colour=colour, height=SIZE, width=SIZE))


@pytest.mark.slow
def test_versions_match_the_model_and_are_measured(tmp_path: Path) -> None:
    classifier, labels = Classifier(network(), views=6, temperature=2.0), list(COLOURS)
    images = [pixels_of(number) for number in range(IMAGES)]
    ingest = {"shrink": 20, "quality": 90}
    choices: dict[str, Any] = {"labels": labels, "config": CONFIG, "ingest": ingest}
    export_lite(classifier, KINDS, str(tmp_path / "model/Format-Lite"), images=images, **choices)
    names = [f"{number:03d}.png" for number in range(IMAGES)]
    path = shard_path(str(tmp_path), "eval", 0, 1)
    with open_shard(path) as writer:
        for name, image in zip(names, images, strict=True):
            features: dict[str, Any] = {ENCODED: encode(_as_image(image), "PNG"), FILENAME: name}
            writer.write(serialize(features))
    write_index(str(tmp_path), {"eval": {Path(path).name: IMAGES}})

    known = classifier.probabilities(tf.constant(np.stack(images))).numpy()
    for kind, tolerance in zip(KINDS, (1e-3, 0.02, 0.05), strict=True):
        file = tmp_path / "model" / "Format-Lite" / f"{kind}.tflite"
        interpreter = tf.lite.Interpreter(model_path=str(file))
        [taken] = interpreter.get_input_details()
        assert (taken["dtype"], list(taken["shape_signature"])) == (np.uint8, [-1, SIZE, SIZE, 3])
        interpreter.resize_tensor_input(taken["index"], [IMAGES, SIZE, SIZE, 3])
        interpreter.allocate_tensors()
        interpreter.set_tensor(taken["index"], np.stack(images))
        interpreter.invoke()
        found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        np.testing.assert_allclose(found, known, atol=tolerance)
    assert (file.parent / "labels.txt").read_text() == "blue\ngreen\nred\n"
    assert json.loads((file.parent / "lite.json").read_text())["ingest"] == ingest

    truth = np.arange(IMAGES) % 3
    _check_measured(tmp_path, names, truth, known, wrong=0)
    # As if the model were right about a quarter of the images where the versions are wrong.
    turned = np.where((np.arange(IMAGES) < IMAGES // 4)[:, np.newaxis], known[:, [1, 2, 0]], known)
    _check_measured(tmp_path, names, turned.argmax(axis=1), turned, wrong=IMAGES // 4)


def _check_measured(tmp_path: Path, names: Any, ids: Any, known: Any, *, wrong: int) -> None:
    predictions = Predictions(tuple(COLOURS), ids, known.astype(np.float32))
    evaluated = Evaluated(tuple(names), {}, predictions, None)
    lost = wrong / IMAGES
    results = measure_lite(
        str(tmp_path / "model"), str(tmp_path), "eval", lambda: evaluated, max_drop=0.01
    )
    assert [result.kind for result in results] == KINDS
    for result in results:
        assert result.accuracy == pytest.approx(1 - lost)
        assert result.drop == pytest.approx(lost)
        assert result.agreement == pytest.approx(1 - lost)
        assert result.bytes > 500
        assert result.images_per_second > 0
        assert bool(result.reason) == bool(wrong)
        assert "0.250 below that of the model; at most 0.01" in result.reason or not wrong
    write_lite_results(str(tmp_path), results)
    assert read_lite_results(str(tmp_path)) == tuple(results)


def _as_image(pixels: Any) -> Any:
    from PIL import Image

    return Image.fromarray(pixels)


@pytest.mark.slow
def test_a_failed_conversion_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "Format-Lite"
    images = [pixels_of(number) for number in range(3)]
    export_lite(
        Classifier(network(odd=True)),
        ["float16"],
        str(folder),
        labels=["a"],
        images=images,
        config=CONFIG,
        ingest={},
    )
    assert "float16" in json.loads((folder / "lite.json").read_text())["failed"]
    nothing = Evaluated((), {}, Predictions((), np.array([]), np.zeros([0, 0], np.float32)), None)
    [result] = measure_lite(str(tmp_path), "none", "eval", lambda: nothing, max_drop=0)
    assert result.reason.startswith("conversion failed: ")
    assert measure_lite(str(tmp_path / "none"), "none", "eval", lambda: nothing, max_drop=0) == []
    assert read_lite_results(str(tmp_path)) == ()
