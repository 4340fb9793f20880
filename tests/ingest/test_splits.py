from collections.abc import Mapping

import pytest

from components.ingest.plan.splits import choose_splits

THREE = {"eval": 0.1, "test": 0.1, "train": 0.8}
TWO = {"eval": 0.2, "train": 0.8}
OWN = {"train": 0.6, "eval": 0.4}
TEN = {"eval": 0.1, "train": 0.9}

Splits = dict[str | None, str | None]

# Files of each named split → the split they get, fractions by hash, why eval also judges.
CASES: dict[str, tuple[dict[str | None, int], Splits, Mapping[str, float], str]] = {
    "no splits": ({None: 1000}, {None: None}, THREE, ""),
    "too few for a test split": ({None: 999}, {None: None}, TWO, "999 images are too few"),
    "train alone": ({"train": 1000}, {"train": None}, THREE, ""),
    "test judges only": ({"train": 1000, "test": 5}, {"train": None, "test": "test"}, TEN, ""),
    "train and eval": (
        {"train": 9999, "eval": 9999},
        {"train": "train", "eval": "eval"},
        {},
        "There is no test split",
    ),
    "all three": (
        {"train": 5, "eval": 5, "test": 5},
        {"train": "train", "eval": "eval", "test": "test"},
        {},
        "",
    ),
    "another split is left alone": (
        {"train": 2000, "night": 5},
        {"train": None, "night": "night"},
        THREE,
        "",
    ),
    "all splits of a manifest, the rest to train": (
        {"train": 300, "eval": 100, "test": 100, None: 500},
        {"train": "train", "eval": "eval", "test": "test", None: None},
        {"train": 1.0},
        "",
    ),
    "eval of a manifest, the rest by hash": (
        {None: 1000, "eval": 5},
        {None: None, "eval": "eval"},
        {"test": 0.1, "train": 0.9},
        "",
    ),
}


@pytest.mark.parametrize(("counts", "splits", "fractions", "why"), CASES.values(), ids=CASES.keys())
def test_splits_by_default(
    counts: dict[str | None, int], splits: Splits, fractions: Mapping[str, float], why: str
) -> None:
    choice = choose_splits(counts)
    assert {name: choice.splits[name] for name in counts} == splits
    if None in splits.values():
        assert list(choice.fractions.items()) == list(fractions.items())
    assert bool(choice.note) is bool(why)
    assert why in choice.note


def test_configured_splits_are_used_as_they_are() -> None:
    assert choose_splits({None: 30}, OWN).fractions == OWN
    assert "There is no test split" in choose_splits({None: 9999}, OWN).note
    few = choose_splits({"train": 30, "test": 5}, OWN)
    assert (few.splits["train"], few.splits["test"], few.note) == (None, "test", "")
    assert choose_splits({None: 30}, THREE).note == ""
