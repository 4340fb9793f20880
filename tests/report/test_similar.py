"""Neighbors by features."""

import numpy as np
import numpy.typing as npt
import pytest

from components.report.suspects import similar
from components.report.suspects.similar import find_neighbors


def draw(rows: int, columns: int = 16) -> npt.NDArray[np.float16]:
    return np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float16)


def test_neighbors_are_those_of_all_pairs_in_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar, "_BLOCK", 7)
    monkeypatch.setattr(similar, "_QUERIES", 5)
    features, among = draw(40), np.arange(0, 40, 2)
    found = find_neighbors(features, np.arange(12), among=among, most=3)
    rows = features.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -2)
    expected = among[np.argsort(-cosines[:12][:, among], axis=1)[:, :3]]
    assert found.rows.tolist() == expected.tolist()
    np.testing.assert_allclose(
        found.similarities, np.take_along_axis(cosines[:12], expected, axis=1), atol=1e-4
    )


def test_ties_go_to_the_lower_row_and_missing_neighbors_are_marked() -> None:
    features = np.ones((4, 2), np.float16)
    found = find_neighbors(features, np.array([1]), among=np.arange(3), most=3)
    assert found.rows.tolist() == [[0, 2, -1]]
    none = find_neighbors(features, np.array([], int), among=np.arange(3), most=3)
    assert none.rows.shape == (0, 3)


def test_broken_features_resemble_nothing() -> None:
    features = np.array([[1, 0], [0, 0], [np.nan, np.inf], [1, 0.5]], np.float16)
    found = find_neighbors(features, np.array([0]), among=np.arange(4), most=3)
    assert found.rows.tolist() == [[3, 1, 2]]
    assert found.similarities[0, 1:].tolist() == [0, 0]
