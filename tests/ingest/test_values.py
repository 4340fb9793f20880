"""What stands for a label or a split is read by one rule, wherever it comes from."""

import datetime
import math
from decimal import Decimal
from typing import Any

import pytest

from components.ingest.source.values import RefusedValueError, read_label, read_split

NAMES = {"0": "blue", "1": "green", "2": "red"}
UNLABELED = ("_unlabeled", "no_label", "Unlabelled", -1, "-1", -1.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("cat", "cat"),
        (b"cat", "cat"),
        (["cat"], "cat"),
        ([b"cat"], "cat"),
        ("two words", "two words"),
        ("017", "017"),
        ("1.5", "1.5"),
        (1, "green"),
        ("2", "red"),
        (b"2", "red"),
        ("02", "red"),
        (7, "7"),
        (1.0, "green"),
        ("1.0", "green"),
        (Decimal("1.00"), "green"),
        (datetime.date(2024, 5, 1), "2024-05-01"),
        ([0, 0, 1], "red"),
        ([0.0, 1.0, 0.0], "green"),
        *((none, None) for none in (None, "", " ", b"", [], [None], math.nan, Decimal("nan"))),
        *((none, None) for none in UNLABELED),
    ],
)
def test_labels(value: Any, text: str | None) -> None:
    assert read_label(value, NAMES) == text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        *((some, "several") for some in (["cat", "x"], [1, 1, 0], [3, 4], [0.0, 1.0])),
        *((odd, "neither text") for odd in (True, 1.5, math.inf, {"name": "cat"}, [True])),
        *((value, "missing") for value in ("nan", "NaN", b"<NA>")),
    ],
)
def test_what_is_no_label(value: Any, reason: str) -> None:
    with pytest.raises(RefusedValueError, match=reason):
        read_label(value, NAMES)


def test_two_numbers_may_be_two_labels() -> None:
    assert read_label([0.0, 1.0]) == "1"
    with pytest.raises(RefusedValueError, match="several"):
        read_label([0, 1])


@pytest.mark.parametrize(
    ("value", "split"),
    [
        ("train", "train"),
        ("Training", "train"),
        (b"dev", "eval"),
        (["VALIDATION "], "eval"),
        ("test_set", "test"),
        ("night", "night"),
        (math.nan, None),
        ("", None),
    ],
)
def test_splits(value: Any, split: str | None) -> None:
    assert read_split(value, ["night"]) == split


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        *((value, "is unknown") for value in ("validate", "../c", "Night", 0, 4.0, "UNASSIGNED")),
        ("nan", "leave it empty"),
        (True, "neither text"),
    ],
)
def test_unknown_splits(value: Any, reason: str) -> None:
    with pytest.raises(RefusedValueError, match=reason):
        read_split(value, ["night"])
