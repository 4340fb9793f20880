"""What stands for a label or a split is read by one rule, wherever it comes from."""

import datetime
import functools
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest

from components.ingest.source.values import RefusedValueError, read_label, read_split

named = functools.partial(read_label, names={"0": "blue", "1": "green", "2": "red"})
of_night = functools.partial(read_split, names=["night"])


Read = Callable[[Any], object]
# Reader, values, and what each of them stands for.
TAKEN: list[tuple[Read, Sequence[Any], str | None]] = [
    (named, ("cat", b"cat", ["cat"], [b"cat"]), "cat"),
    (named, ("two words",), "two words"),
    (named, ("017",), "017"),
    (named, ("1.5",), "1.5"),
    (named, (1, 1.0, "1.0", Decimal("1.00"), [1.0]), "green"),
    (named, ("2", b"2", "02"), "red"),
    (named, (7,), "7"),
    (named, (datetime.date(2024, 5, 1),), "2024-05-01"),
    (named, (None, "", " ", b"", [], [None], math.nan, Decimal("nan")), None),
    (named, ("_unlabeled", "no_label", "Unlabelled", -1, "-1", -1.0), None),
    (of_night, ("train", "Training"), "train"),
    (of_night, (b"dev", ["VALIDATION "]), "eval"),
    (of_night, ("test_set",), "test"),
    (of_night, ("night",), "night"),
    (of_night, (math.nan, ""), None),
]


@pytest.mark.parametrize(("read", "values", "text"), TAKEN)
def test_what_a_value_stands_for(read: Read, values: Sequence[Any], text: str | None) -> None:
    assert [read(value) for value in values] == [text] * len(values)


REFUSED: list[tuple[Read, Sequence[Any], str]] = [
    (named, (["cat", "x"], [0, 1, 0], [0.0, 1.0]), "several"),
    (named, (True, 1.5, math.inf, {"name": "cat"}, [True]), "neither text"),
    (named, ("nan", "NaN", b"<NA>"), "missing"),
    (of_night, ("validate", "../c", "Night", 0, 4.0, "UNASSIGNED"), "is unknown"),
    (of_night, ("nan",), "leave it empty"),
    (of_night, (True,), "neither text"),
]


@pytest.mark.parametrize(
    ("read", "value", "reason"), [(read, v, why) for read, values, why in REFUSED for v in values]
)
def test_what_is_refused(read: Read, value: Any, reason: str) -> None:
    with pytest.raises(RefusedValueError, match=reason):
        read(value)
