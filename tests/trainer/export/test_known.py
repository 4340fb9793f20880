"""An image is known, or not, wherever the model answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.metrics import roc_auc_score

from components.contract.artifact_files import read_json
from components.contract.example import ENCODED
from components.contract.model_files import KNOWN, KNOWN_SCORE
from components.images.canonical import canonicalize
from components.images.options import TransformConfig
from components.metrics.calibration import Unknowns
from components.predict.model import RankingModel
from components.trainer.export.formats import export_formats
from components.trainer.export.signatures import Classifier, make_signatures, save_atomically
from components.trainer.loop.calibration import fit_known
from pipeline_def.apps.serve.model import Model
from pipeline_def.apps.serve.versions import Versions
from tests.apps.serve.serving import ask, instances, running
from tests.apps.serve.test_inference_protocol import INFER, infer

SIZE = 8
COLORS = np.array([[200, 60, 60], [60, 200, 60], [60, 60, 200]])
GRAY = np.array([[110, 110, 110]])


def draw(colors: NDArray[Any], each: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return noisy images of each color, uint8 [images, SIZE, SIZE, 3], and their label ids."""
    random, ids = np.random.default_rng(seed), np.tile(np.arange(len(colors)), each)
    of_image = colors[ids] + random.normal(size=(len(ids), 3)) * 15
    noise = random.normal(size=(len(ids), SIZE, SIZE, 3)) * 20
    return (of_image[:, None, None] + noise).clip(0, 255).astype(np.uint8), ids


def make_network() -> tf_keras.Model:
    """Return a network that tells the three colors apart by the mean of each channel."""
    images = tf_keras.layers.Input([SIZE, SIZE, 3], dtype=tf.uint8)
    means = tf_keras.layers.GlobalAveragePooling2D()(tf_keras.layers.Rescaling(1 / 32)(images))
    logits = tf_keras.layers.Dense(3, kernel_initializer=tf_keras.initializers.Identity())(means)
    return tf_keras.Model(images, logits)


@pytest.fixture(scope="module")
def network() -> tf_keras.Model:
    return make_network()


def fit(network: tf_keras.Model, *, each: int = 400) -> tuple[Classifier, Unknowns]:
    images = tf.data.Dataset.from_tensor_slices(draw(COLORS, each, seed=2)).batch(64)
    unknowns = fit_known(network, images, rate=0.05)
    return Classifier(network, known=unknowns.threshold), unknowns


def test_false_alarms_are_as_wanted_and_unknown_images_are_found(network: tf_keras.Model) -> None:
    classifier, unknowns = fit(network)
    images = np.concatenate([draw(COLORS, 300, seed=3)[0], draw(GRAY, 300, seed=4)[0]])
    found = classifier.answer(tf.constant(images))
    score, known = found[KNOWN_SCORE].numpy(), found[KNOWN].numpy()
    logits = network(images).numpy().astype(np.float64)
    np.testing.assert_allclose(score, logsumexp(logits, axis=1), rtol=1e-5)
    assert (known == (score >= np.float32(unknowns.threshold))).all()
    measured = unknowns.measure(score[:900], held_out=True)
    assert measured.found == np.mean(~known[:900])
    assert measured.interval is not None
    assert 0.05 in measured.interval
    assert roc_auc_score(np.arange(1200) < 900, score) > 0.97
    assert np.mean(~known[900:]) > 0.8
    assert unknowns.measure(score[:900], held_out=False).found is None


def test_images_of_unknown_labels_are_not_fitted(network: tf_keras.Model) -> None:
    images, ids = draw(COLORS, 40, seed=2)
    some = tf.data.Dataset.from_tensor_slices((images, np.where(ids == 0, -1, ids))).batch(64)
    assert fit_known(network, some, rate=0.05).images == 80


@pytest.mark.parametrize(("each", "enough"), [(6, False), (7, True)])
def test_a_threshold_takes_enough_images(
    network: tf_keras.Model, each: int, *, enough: bool
) -> None:
    classifier, unknowns = fit(network, each=each)
    assert unknowns.images == 3 * each
    assert (unknowns.threshold is not None) == enough
    found = classifier.answer(tf.constant(draw(COLORS, 1, 5)[0]))
    assert (KNOWN in found) == (KNOWN_SCORE in found) == enough


@pytest.mark.slow
@pytest.mark.usefixtures("converting_here")
def test_the_decision_is_the_same_everywhere(tmp_path: Path) -> None:
    classifier, unknowns = fit(make_network())
    config = TransformConfig(size=SIZE, storage="png")
    signatures = make_signatures(
        classifier,
        lambda features: {ENCODED: canonicalize(tf.squeeze(features[ENCODED], 1), config)},
        labels=[b"red", b"green", b"blue"],
        raw_spec={},
        config=config,
    )
    served = tf.Module()
    served.weights = classifier.model.variables
    folder = tmp_path / "pushed" / "7"
    save_atomically(served, str(folder), {"serving_default": signatures["serving_default"]})

    pixels = np.concatenate([draw(COLORS, 4, seed=7)[0], draw(GRAY, 12, seed=8)[0]])
    files = [tf.io.encode_png(image).numpy() for image in pixels]
    saved = tf.saved_model.load(str(folder)).signatures["serving_default"]
    outputs = saved(image_bytes=tf.constant(files))
    known, scores = outputs["known"].numpy().tolist(), outputs["known_score"].numpy()
    assert 0 < sum(known) < len(known)
    # A file that was not decoded is nothing that is known.
    broken = saved(image_bytes=tf.constant([b"no image"]))
    assert (broken["known"].numpy(), broken["known_score"].numpy()) == (False, 0)

    predicted = RankingModel(str(folder), top=1).predict(files)
    assert [of.known for of in predicted if not isinstance(of, str)] == known
    with running(Versions(str(folder.parent), Model)) as port:
        _, answer = ask(port, body=instances(*files))
        assert [row["known"] for row in answer["predictions"]] == known
        _, answer = ask(port, INFER, infer(*files))
    tensors = {of["name"]: of for of in answer["outputs"]}
    assert (tensors["known"]["datatype"], tensors["known"]["data"]) == ("BOOL", known)
    assert tensors["known_score"]["data"] == pytest.approx(scores.tolist())

    import onnxruntime

    kinds: Any = ["onnx", "float16", "int8"]
    export_formats(
        classifier,
        kinds,
        str(tmp_path),
        labels=["red", "green", "blue"],
        images=draw(COLORS, 30, seed=9)[0],
        config=config,
        ingest={},
    )
    manifest = read_json(str(tmp_path / "formats.json"))
    assert manifest["known_threshold"] == unknowns.threshold
    assert not manifest["failed"]
    for kind, tolerance in (("onnx", 1e-3), ("float16", 0.1), ("int8", 1)):
        if kind == "onnx":
            names = ["known", "known_score", "probabilities"]
            file = tmp_path / "model.onnx"
            session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
            found = dict(zip(names, session.run(names, {"images": pixels}), strict=True))
        else:
            interpreter = tf.lite.Interpreter(model_path=str(tmp_path / f"{kind}.tflite"))
            found = interpreter.get_signature_runner()(images=pixels)
        assert found["known"].tolist() == known, kind
        np.testing.assert_allclose(found["known_score"], scores, atol=tolerance)
        assert found["probabilities"].shape == (len(files), 3)
