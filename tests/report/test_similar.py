"""Neighbors by features, and the layout of the map."""

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from components.report.suspects import similar
from components.report.suspects.similar import find_neighbors, lay_out


def draw(rows: int, columns: int = 16) -> npt.NDArray[np.float16]:
    return np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float16)


def test_neighbors_are_those_of_all_pairs_in_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar, "_BLOCK", 7)
    monkeypatch.setattr(similar, "_QUERIES", 5)
    features, among = draw(40), np.arange(0, 40, 2)
    neighbors = find_neighbors(features, np.arange(12), among=among, most=3)
    rows = features.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -2)
    expected = among[np.argsort(-cosines[:12][:, among], axis=1)[:, :3]]
    assert neighbors.rows.tolist() == expected.tolist()
    np.testing.assert_allclose(
        neighbors.similarities, np.take_along_axis(cosines[:12], expected, axis=1), atol=1e-4
    )


def test_ties_go_to_the_lower_row_and_missing_neighbors_are_marked() -> None:
    features = np.ones((4, 2), np.float16)
    neighbors = find_neighbors(features, np.array([1]), among=np.arange(3), most=3)
    assert neighbors.rows.tolist() == [[0, 2, -1]]
    none = find_neighbors(features, np.array([], int), among=np.arange(3), most=3)
    assert none.rows.shape == (0, 3)


def test_broken_features_resemble_nothing() -> None:
    features = np.array([[1, 0], [0, 0], [np.nan, np.inf], [1, 0.5]], np.float16)
    neighbors = find_neighbors(features, np.array([0]), among=np.arange(4), most=3)
    assert neighbors.rows.tolist() == [[3, 1, 2]]
    assert neighbors.similarities[0, 1:].tolist() == [0, 0]


def measure_purity(places: npt.NDArray[np.float64], groups: npt.NDArray[np.int64]) -> float:
    """Return the fraction of the ten nearest neighbors that are of the same group."""
    near = NearestNeighbors(n_neighbors=11).fit(places).kneighbors(return_distance=False)
    return float((groups[near] == groups[:, None]).mean())


@pytest.mark.parametrize("images", [150, 400])
def test_classes_part_better_than_by_two_principal_components(images: int) -> None:
    digits = load_digits()
    features, groups = digits.data[:images].astype(np.float32), digits.target[:images]
    places = lay_out(features)
    assert ((places >= 0) & (places <= 1)).all()
    assert places.max() > 0.95
    assert places.min() < 0.05
    flat = PCA(2, random_state=0).fit_transform(features)
    assert measure_purity(places, groups) > 0.85 > measure_purity(flat, groups) + 0.2
    assert (lay_out(features) == places).all()


@pytest.mark.parametrize(
    "features", [np.zeros((0, 4)), np.ones((1, 4)), np.ones((9, 1)), np.full((3, 5), np.nan)]
)
def test_few_or_equal_images_have_places(features: npt.NDArray[np.float64]) -> None:
    places = lay_out(features)
    assert places.shape == (len(features), 2)
    assert ((places >= 0) & (places <= 1)).all()


def test_a_map_of_many_images_has_evenly_spaced_ones_and_the_suspects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(similar, "MOST_POINTS", 10)
    columns = {name: np.array([f"{n}" for n in range(100)], object) for name in ("path", "label")}
    features = np.random.default_rng(0).normal(size=(100, 4))
    drawn = similar.draw_map(columns, features, {"5"})
    assert drawn.paths == ("0", "5", *(str(n) for n in range(10, 100, 10)))
    assert drawn.total == 100
