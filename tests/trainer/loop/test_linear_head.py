from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tf_keras import layers

from components.trainer.loop.linear_head import fit_head, measure
from components.trainer.networks.parts import make_head


def make(classes: int, *, scale: float = 1.0, use_bias: bool = True) -> Any:
    features = layers.Input([8])
    logits = layers.Dense(classes, use_bias=use_bias)(layers.Dropout(0.5)(features))
    return make_head(features, layers.Rescaling(scale)(logits) if scale != 1 else logits)


def draw(classes: int, images: int, *, seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    ids = random.integers(0, classes, images)
    centers = np.random.default_rng(1).normal(size=(classes, 8))
    return 5 + 3 * (centers[ids] + 0.7 * random.normal(size=(images, 8))), ids


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("options", [{}, {"scale": 1 / 9, "use_bias": False}, {"scale": 1 / 9}])
def test_the_head_computes_what_was_fitted(classes: int, options: dict[str, Any]) -> None:
    (features, ids), (others, their_ids) = draw(classes, 300), draw(classes, 1000, seed=2)
    head = make(classes, **options)
    predict = fit_head(head, features, ids)
    np.testing.assert_allclose(head(others.astype(np.float32)), predict(others), atol=1e-3)
    regression = LogisticRegression(max_iter=5000).fit(features, ids)
    least = regression.score(others, their_ids) - 0.02
    assert measure(predict(others), their_ids)["accuracy"] >= least


def test_classes_without_images_are_never_predicted() -> None:
    features, ids = draw(3, 200)
    for given in (ids * 2, np.full(200, 3), np.where(ids > 0, 4, 1)):
        logits = fit_head(make(6), features, given)(features)
        assert set(logits.argmax(axis=1).tolist()) <= set(given.tolist())


def test_one_image_a_class_is_enough() -> None:
    features, ids = draw(5, 400)
    first = [int(np.flatnonzero(ids == label)[0]) for label in range(5)]
    predict = fit_head(make(5), features[first], ids[first])
    assert measure(predict(features), ids)["accuracy"] > 0.5


def test_a_class_weighs_as_much_as_its_factor() -> None:
    features, ids = draw(2, 400)
    ids[features[:, 0] < 4] = 0
    plain = fit_head(make(2), features, ids)(features)
    heavy = fit_head(make(2), features, ids, class_weights=[0.1, 10.0])(features)
    assert (heavy.argmax(axis=1) == 1).sum() > (plain.argmax(axis=1) == 1).sum()


def test_metrics() -> None:
    logits = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [0.0, 1.0, 5.0]], np.float32)
    ids = np.array([0, 1, 1])
    metrics = measure(logits, ids)
    assert metrics["accuracy"] == pytest.approx(2 / 3)
    assert metrics["balanced_accuracy"] == 0.75
