"""The layout of the map of images."""

import numpy as np
import numpy.typing as npt
import pytest

from components.report.suspects.map_layout import lay_out


def test_groups_of_similar_images_part() -> None:
    random = np.random.default_rng(2)
    groups = random.integers(0, 3, 150)
    features = np.eye(3, 20)[groups] + random.normal(0, 0.1, (150, 20))
    places = lay_out(features)
    assert ((places >= 0) & (places <= 1)).all()
    gaps = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(gaps, np.inf)
    assert np.mean(groups[gaps.argmin(axis=1)] == groups) > 0.98
    assert (lay_out(features) == places).all()


@pytest.mark.parametrize("features", [np.zeros((0, 4)), np.ones((1, 4)), np.ones((9, 1))])
def test_few_or_equal_images_have_places(features: npt.NDArray[np.float64]) -> None:
    places = lay_out(features)
    assert places.shape == (len(features), 2)
    assert ((places >= 0) & (places <= 1)).all()
