"""The layout of the map of images."""

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from components.report.suspects.similar import lay_out


def measure_purity(places: npt.NDArray[np.float64], groups: npt.NDArray[np.int64]) -> float:
    """Return the fraction of the ten nearest neighbors that are of the same group."""
    near = NearestNeighbors(n_neighbors=11).fit(places).kneighbors(return_distance=False)
    return float((groups[near] == groups[:, None]).mean())


def test_classes_part_better_than_by_two_principal_components() -> None:
    digits = load_digits()
    features, groups = digits.data[:400].astype(np.float32), digits.target[:400]
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
