"""Rows that are few stay in memory; many are the same rows, from a file."""

import random
from collections.abc import Callable, Sequence

import pytest

from components.ingest.source.listing import ImageFile
from components.storage import row_table
from components.storage.folder_listing import Found
from components.storage.row_table import keep, sort

ROWS = [Found(f"{n % 7}/caf\udce9 {n:05d}.jpg", "", n, f"{n * 7} {n}", "") for n in range(2_000)]


@pytest.fixture(params=[10_000, 300], ids=["in memory", "in a file"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(row_table, "MOST_IN_MEMORY", request.param)
    return bool(request.param > len(ROWS))


MAKE: dict[str, Callable[[], Sequence[Found]]] = {
    "kept": lambda: keep(iter(ROWS), Found),
    "sorted": lambda: sort(iter(random.Random(0).sample(ROWS, len(ROWS))), Found),
    "sorted by a key": lambda: sort(iter(ROWS), Found, lambda row: -row.size),
}


@pytest.mark.parametrize("make", MAKE)
def test_rows_are_a_sequence(kept: bool, make: str) -> None:
    expected = {"kept": ROWS, "sorted": sorted(ROWS)}.get(make, ROWS[::-1])
    rows = MAKE[make]()
    assert isinstance(rows, tuple) == kept
    assert list(rows) == expected
    assert (len(rows), rows[0], rows[-1]) == (len(expected), expected[0], expected[-1])
    assert [*rows[254:258]] == expected[254:258]
    assert rows[300:][7] == expected[307]
    # Two readers do not disturb each other.
    assert all(a == b for a, b in zip(rows, rows, strict=True))
    with pytest.raises(IndexError):
        rows[2_000]


def test_columns_stay_what_they_are(kept: bool) -> None:
    columns: dict[str, str | int | float] = {"camera": "a", "age": 3, "weight": 0.1}
    files = [ImageFile(str(n), "a", None, n, "1", columns=columns) for n in range(400)]
    assert [*keep(files, ImageFile)] == files
