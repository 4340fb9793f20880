"""An image is known, or not, wherever the model answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from components.contract.artifact_files import read_json
from components.contract.example import ENCODED
from components.contract.model_files import KNOWN, KNOWN_SCORE
from components.images.canonical import canonicalize
from components.images.options import TransformConfig
from components.metrics.score_metrics import Unknowns
from components.predict.model import RankingModel
from components.trainer.export.formats import export_formats
from components.trainer.export.known import Known, Likeness
from components.trainer.export.signatures import Classifier, make_signatures, save_atomically
from components.trainer.loop.calibration import fit_threshold
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


def see(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the features that the network has for images: means of the channels."""
    means: NDArray[np.float32] = images.astype(np.float32).mean(axis=(1, 2)) / 32
    return means


def fit(network: tf_keras.Model, *, each: int = 400) -> tuple[Classifier, Unknowns]:
    images, ids = draw(COLORS, 400, seed=1)
    likeness = Likeness.fit(see(images), ids)
    unknowns = fit_threshold(likeness.score(see(draw(COLORS, each, seed=2)[0])), rate=0.05)
    known = None if unknowns.threshold is None else Known(likeness, unknowns.threshold)
    return Classifier(network, known=known), unknowns


def answer(classifier: Classifier, images: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    outputs = tf.function(classifier.answer, autograph=False)(tf.constant(images))
    return {name: value.numpy() for name, value in outputs.items()}


def test_false_alarms_are_as_wanted_and_unknown_images_are_found(network: tf_keras.Model) -> None:
    classifier, unknowns = fit(network)
    images = np.concatenate([draw(COLORS, 300, seed=3)[0], draw(GRAY, 300, seed=4)[0]])
    outputs = answer(classifier, images)
    score, known = outputs[KNOWN_SCORE], outputs[KNOWN]
    likeness = Likeness.fit(see(draw(COLORS, 400, seed=1)[0]), draw(COLORS, 400, seed=1)[1])
    np.testing.assert_allclose(score, likeness.score(see(images)), atol=1e-4)
    assert (known == (score >= np.float32(unknowns.threshold))).all()
    measured = unknowns.measure(score[:900], held_out=True)
    assert measured.found == np.mean(~known[:900])
    assert measured.interval is not None
    assert measured.interval.low <= 0.05 <= measured.interval.high
    assert roc_auc_score(np.arange(1200) < 900, score) > 0.97
    assert np.mean(~known[900:]) > 0.8
    assert unknowns.measure(score[:900], held_out=False).found is None


def test_the_score_is_that_of_linear_discriminant_analysis() -> None:
    random, ids = np.random.default_rng(0), np.arange(300) % 3
    features = (random.normal(size=(300, 5)) + 2 * np.eye(5)[ids] + 3).astype(np.float32)
    deviation = features.std(axis=0)
    values = (features - features.mean(axis=0)) / (deviation + 0.1 * deviation.mean())
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    means = np.stack([values[ids == label].mean(axis=0) for label in range(3)])
    covariance = np.cov((values - means[ids]).T, bias=True)
    inverse = np.linalg.inv(covariance + 3 * np.trace(covariance) / 5 * np.eye(5))

    def distance(center: NDArray[Any]) -> NDArray[Any]:
        away = values - center
        distances: NDArray[Any] = np.einsum("id,de,ie->i", away, inverse, away)
        return distances

    nearest = np.min([distance(mean) for mean in means], axis=0)
    expected = (distance(values.mean(axis=0)) - nearest) / 2
    np.testing.assert_allclose(Likeness.fit(features, ids).score(features), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("each", "classes", "features"),
    [
        (1, 2, 4),  # One image a class has no deviation from its mean.
        (1, 1000, 16),
        (2, 3, 9000),  # Too many for their covariance.
    ],
)
def test_few_images_have_scores(each: int, classes: int, features: int) -> None:
    ids = np.tile(np.arange(classes), each)
    values = np.random.default_rng(0).normal(size=(len(ids), features)).astype(np.float32)
    values[:, 0] = 1.0  # A feature may be constant.
    scores = Likeness.fit(values, ids).score(np.concatenate([values, -values]))
    assert np.isfinite(scores).all()
    assert scores[: len(ids)].mean() > scores[len(ids) :].mean()


@pytest.mark.parametrize(("each", "enough"), [(6, False), (7, True)])
def test_a_threshold_takes_enough_images(
    network: tf_keras.Model, each: int, *, enough: bool
) -> None:
    classifier, unknowns = fit(network, each=each)
    assert unknowns.images == 3 * each
    assert (unknowns.threshold is not None) == enough
    outputs = answer(classifier, draw(COLORS, 1, 5)[0])
    assert (KNOWN in outputs) == (KNOWN_SCORE in outputs) == enough


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
    served.weights = classifier.variables
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
    assert [answer.known for answer in predicted if not isinstance(answer, str)] == known
    with running(Versions(str(folder.parent), Model)) as port:
        _, answer = ask(port, body=instances(*files))
        assert [row["known"] for row in answer["predictions"]] == known
        _, answer = ask(port, INFER, infer(*files))
    tensors = {row["name"]: row for row in answer["outputs"]}
    assert (tensors["known"]["datatype"], tensors["known"]["data"]) == ("BOOL", known)
    assert tensors["known_score"]["data"] == pytest.approx(scores.tolist())

    import onnxruntime

    kinds: Any = ["onnx", "int8"]
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
    names = ["known", "known_score", "probabilities"]
    file = tmp_path / "model.onnx"
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    found = dict(zip(names, session.run(names, {"images": pixels}), strict=True))
    assert found["known"].tolist() == known
    np.testing.assert_allclose(found["known_score"], scores, atol=1e-3)
    interpreter = tf.lite.Interpreter(model_path=str(tmp_path / "int8.tflite"))
    found = interpreter.get_signature_runner()(images=pixels)
    assert {name: values.shape for name, values in found.items()} == {
        "probabilities": (len(files), 3)
    }
