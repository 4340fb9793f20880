import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from components.contract.example import ENCODED
from components.contract.model_files import KNOWN, KNOWN_SCORE
from components.metrics.unknowns import Judged, LeftOut, Unknowns, compare_left_out
from components.transform.config import TransformConfig
from pipeline_def.config.model import ModelConfig
from pipeline_def.model.networks import build_model
from pipeline_def.serving.known import KnownScore
from pipeline_def.serving.signatures import Classifier, make_signatures
from pipeline_def.training.known import assign_classes, fit_known, project

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
    train, evaluation = (
        tf.data.Dataset.from_tensor_slices(draw(COLORS, each, seed)).batch(64) for seed in (1, 2)
    )
    data: Any = SimpleNamespace(train=train, read_in_order=lambda of: of, evaluation=evaluation)
    known, unknowns = fit_known(network, data, rate=0.05)
    return Classifier(network, known=known), unknowns


def serve(classifier: Classifier, files: list[bytes]) -> dict[str, NDArray[Any]]:
    signature = make_signatures(
        classifier,
        lambda features: {ENCODED: tf.squeeze(features[ENCODED], 1)},
        labels=[b"red", b"green", b"blue"],
        raw_spec={},
        config=TransformConfig(size=SIZE, storage="png"),
    )["serving_default"]
    return {name: of.numpy() for name, of in signature(image_bytes=tf.constant(files)).items()}


@pytest.mark.slow
def test_false_alarms_are_as_wanted_and_unknown_images_are_found(network: tf_keras.Model) -> None:
    classifier, unknowns = fit(network)
    usual, _ = draw(COLORS, 300, seed=3)
    others, _ = draw(GRAY, 300, seed=4)
    # The classes differ in hue; a lighter red has the hue of red, and a higher energy.
    lighter, _ = draw(COLORS + 50, 100, seed=5)
    files = [tf.io.encode_png(image).numpy() for image in (*usual, *others, *lighter)]
    found = serve(classifier, [*files, b"no image"])
    score, known = found[KNOWN_SCORE][:-1], found[KNOWN][:-1]
    assert np.mean(~known[1200:]) > 0.9
    score, known = score[:1200], known[:1200]
    assert (known == (score >= np.float32(unknowns.threshold))).all()
    measured = unknowns.measure(score[:900], held_out=True)
    assert measured.found == np.mean(~known[:900])
    assert measured.interval is not None
    assert 0.05 in measured.interval
    assert roc_auc_score(np.arange(1200) < 900, score) > 0.97
    assert np.mean(~known[900:]) > 0.8
    # A file that was not decoded is nothing that is known.
    assert (found[KNOWN][-1], found[KNOWN_SCORE][-1]) == (False, 0)
    assert unknowns.measure(score[:900], held_out=False).found is None


@pytest.mark.slow
def test_a_network_for_digits_does_not_know_noise_or_blank_images() -> None:
    loaded = load_digits()
    pixels = np.round(loaded.images * (255 / 16)).astype(np.uint8)
    pixels = np.kron(pixels, np.ones([1, 2, 2], np.uint8))[..., np.newaxis].repeat(3, axis=3)
    rows = tf.data.Dataset.from_tensor_slices((pixels, loaded.target.astype(np.int64))).batch(32)
    train, evaluation = rows.skip(8), rows.take(8)
    tf_keras.utils.set_random_seed(0)
    config = ModelConfig(name="cnn", width=8)
    network = build_model(config, size=16, classes=10, mean=[80.0] * 3, variance=[9e3] * 3, seed=0)
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile("adam", loss)
    network.fit(train.shuffle(100, seed=0), epochs=5, verbose=0)
    data: Any = SimpleNamespace(train=train, read_in_order=lambda of: of, evaluation=evaluation)
    known, _ = fit_known(network, data, rate=0.05)
    answer = tf.function(Classifier(network, known=known).answer, autograph=False)
    noise = np.random.default_rng(0).integers(0, 256, (100, 16, 16, 3), np.uint8)
    blank = np.arange(0, 256, 5, np.uint8)[:, None, None, None] + np.zeros([16, 16, 3], np.uint8)
    for strange in (noise, blank):
        assert np.mean(answer(tf.constant(strange))[KNOWN]) < 0.3


@pytest.mark.parametrize(("each", "enough"), [(6, False), (7, True)])
def test_a_threshold_takes_enough_images(
    network: tf_keras.Model, each: int, *, enough: bool
) -> None:
    classifier, unknowns = fit(network, each=each)
    assert unknowns.images == 3 * each
    assert (unknowns.threshold is not None) == enough
    answer = tf.function(classifier.answer, autograph=False)
    found = answer(tf.constant(draw(COLORS, 1, 5)[0]))
    assert (KNOWN in found) == (KNOWN_SCORE in found) == enough


def test_the_score_is_the_relative_mahalanobis_distance() -> None:
    random, ids = np.random.default_rng(0), np.arange(600) % 3
    features = random.normal(size=(3, 5))[ids] * 2 + random.normal(size=(600, 5)) @ random.normal(
        size=(5, 5)
    )
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    given = np.eye(4)[ids]
    score = project(given.sum(axis=0), given.T @ features, features.T @ features)

    # A Dense layer of the features gives the logits, as find_features expects.
    @tf.function(autograph=False)
    def measure(at: tf.Tensor) -> Any:
        return score.measure(at @ tf.ones([5, 3]))

    _, distance, residual = measure(tf.constant(features.astype(np.float32)))
    means = np.stack([features[ids == number].mean(axis=0) for number in range(3)])
    within = np.cov((features - means[ids]).T, bias=True)
    within = 0.99 * within + 0.01 * np.trace(within) / 5 * np.eye(5)
    center = features.mean(axis=0)
    between = (means - center).T @ (means - center) / 3

    def squared(of: NDArray[Any], covariance: NDArray[Any]) -> NDArray[Any]:
        distances: NDArray[Any] = (of @ np.linalg.inv(covariance) * of).sum(axis=1)
        return distances

    near = np.min([squared(features - mean, within) for mean in means], axis=0)
    expected = squared(features - center, within + between) - near
    np.testing.assert_allclose(distance.numpy(), expected, rtol=1e-3, atol=1e-3)
    between_classes = (((features - center) @ score.projection) ** 2).sum(axis=1)
    outside = squared(features - center, within) - between_classes
    np.testing.assert_allclose(residual.numpy(), -outside, rtol=1e-3, atol=1e-3)
    # In the graph, the parts are added up in fewer operations.
    parts = np.stack([of.numpy() for of in measure(features.astype(np.float32))], axis=1)
    score = score.standardize(parts[::2].astype(np.float64))
    added = tf.function(lambda at: score.score(at @ tf.ones([5, 3])), autograph=False)
    found = added(tf.constant(features.astype(np.float32)))
    np.testing.assert_allclose(found, score.add(parts), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("features", "columns"),
    [(2, 1), (20, 18), pytest.param(700, 256, id="mixed, so that a model stays small")],
)
def test_the_residual_has_few_columns_and_keeps_its_value(features: int, columns: int) -> None:
    random = np.random.default_rng(0)
    given, at = np.eye(3)[np.arange(900) % 3], random.normal(size=(900, features))
    score = project(given.sum(axis=0), given.T @ at, at.T @ at)
    assert score.outside.shape == (features, columns)
    residual = (((at - score.origin) @ score.outside) ** 2).sum(axis=1).mean()
    # Each axis has unit variance.
    assert residual == pytest.approx(features - 2, rel=0.05, abs=1e-6)


def test_every_class_is_left_out_once() -> None:
    groups = assign_classes(np.array([0, 2, 3, 4, 7]), 2)
    assert sorted(np.concatenate(groups).tolist()) == [0, 2, 3, 4, 7]
    assert sorted(map(len, groups)) == [2, 3]


def test_classes_left_out_are_compared_with_the_known_ones() -> None:
    random = np.random.default_rng(0)
    trainings, areas = [], []
    for group in ([0, 1], [2, 3]):
        known = random.normal(size=400) + 1.5
        known[np.isin(np.arange(400) % 4, group)] = np.nan
        seen = known[~np.isnan(known)]
        unknown = {number: random.normal(size=50 + number) + number / 4 for number in group}
        for scores in unknown.values():
            truth = np.repeat([1, 0], [len(seen), len(scores)])
            areas.append(roc_auc_score(truth, np.concatenate([seen, scores])))
        both = {number: dict.fromkeys(("score", "softmax"), of) for number, of in unknown.items()}
        trainings.append(Judged(dict.fromkeys(("score", "softmax"), known), both))
    found = compare_left_out(trainings, list("abcd"), rate=0.05)
    assert found.auroc == pytest.approx(np.mean(areas))
    assert found.softmax == found.auroc
    assert [of.auroc for of in found.classes] == pytest.approx(sorted(areas))
    assert (found.trainings, found.images) == (2, 400)
    assert found.interval is not None
    assert found.auroc is not None
    assert found.auroc in found.interval
    # Classes differ more than images.
    assert found.interval.high - found.interval.low > 0.05
    assert LeftOut.read(dataclasses.asdict(found)) == found


def test_equal_features_do_not_divide_by_zero() -> None:
    score = project(np.array([3.0, 2.0]), np.zeros((2, 4)), np.zeros((4, 4)))
    assert isinstance(score, KnownScore)
    assert all(np.isfinite(of).all() for of in (score.projection, score.means, score.outside))
