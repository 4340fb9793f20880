"""Odd images among ordinary ones."""

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from components.contract.image_tables import Reason
from components.report.suspects.odd_images import MOST, find_odd

COUNT = 200


def make_columns(**changes: float) -> dict[str, npt.NDArray[Any]]:
    """Statistics as photographs have them; the last row has `changes`."""
    random = np.random.default_rng(7)
    columns: dict[str, npt.NDArray[Any]] = {
        "path": np.array([f"cat/{row}.jpg" for row in range(COUNT)], object),
        "sha256": np.array([f"{row:064d}" for row in range(COUNT)], object),
        "split": np.array(["train"] * COUNT, object),
        "label": np.array(["cat"] * COUNT, object),
        "brightness_low": random.uniform(0, 0.5, COUNT),
        "brightness_high": random.uniform(0.6, 1, COUNT),
        "contrast": random.uniform(0.1, 0.35, COUNT),
        "sharpness": 2 ** random.normal(0.3, 0.5, COUNT),
    }
    for name, value in changes.items():
        columns[name][-1] = value
    return columns


CASES: list[tuple[Reason, dict[str, float]]] = [
    ("blank", {"contrast": 0, "sharpness": 0, "brightness_high": 0}),
    ("dark", {"brightness_high": 0.2, "brightness_low": 0.01}),
    ("bright", {"brightness_low": 0.95, "brightness_high": 1}),
    ("blurred", {"sharpness": 0.2}),
]


@pytest.mark.parametrize(("reason", "changes"), CASES)
def test_one_odd_image_is_found_for_its_most_telling_reason(
    reason: Reason, changes: dict[str, float]
) -> None:
    odd = find_odd(make_columns(**changes))
    assert [(row.path, row.reason) for row in odd.suspects] == [(f"cat/{COUNT - 1}.jpg", reason)]
    assert 0.5 <= odd.suspects[0].score <= 1
    assert odd.counts == {reason: 1}


@pytest.mark.parametrize(("reason", "changes"), CASES)
def test_a_set_that_is_like_that_as_a_whole_has_no_odd_images(
    reason: Reason, changes: dict[str, float]
) -> None:
    columns = make_columns()
    for name, value in changes.items():
        # Not exactly alike.
        columns[name] = value * np.random.default_rng(3).uniform(0.9, 1.1, COUNT)
    assert not find_odd(columns).suspects


def test_an_outlier_is_far_from_all_training_images() -> None:
    random = np.random.default_rng(5)
    features = random.normal(0, 0.1, (COUNT, 32)) + random.choice(np.eye(4, 32), COUNT)
    assert not find_odd(make_columns(), features).suspects
    features[-1] = -20 * np.ones(32)
    [outlier] = find_odd(make_columns(), features).suspects
    assert (outlier.path, outlier.reason) == (f"cat/{COUNT - 1}.jpg", "outlier")
    few = {name: values[-3:] for name, values in make_columns().items()}
    assert not find_odd(few, features[-3:]).suspects


def test_no_more_than_a_person_looks_at_are_listed_and_all_are_counted() -> None:
    columns = make_columns()
    columns["brightness_high"][:20] = 0.2
    columns["brightness_low"][20:40] = 0.95
    columns["sharpness"][40:60] = 0.1
    columns["contrast"][60:80] = 0
    odd = find_odd(columns)
    assert odd.counts == {"blank": 20, "dark": 20, "bright": 20, "blurred": 20}
    assert len(odd.suspects) == MOST
    assert max(Counter(row.reason for row in odd.suspects).values()) <= 12
    assert odd == find_odd(columns)
    columns["decided"] = np.isin(columns["sha256"], [suspect.sha256 for suspect in odd.suspects])
    following = find_odd(columns)
    assert len(following.suspects) == len(odd.suspects)
    assert not {*following.suspects} & {*odd.suspects}


def test_missing_statistics_find_nothing() -> None:
    columns = make_columns()
    columns["contrast"][:] = np.nan
    assert not find_odd(columns).suspects
    assert not find_odd({name: values[:0] for name, values in columns.items()}).suspects
