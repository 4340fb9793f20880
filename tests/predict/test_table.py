import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from components.contract.errors import ConfigurationError, StorageError
from components.host import stopping
from components.predict.flow import FileOutcome
from components.predict.table import check_table, write_table

OUTCOMES = [
    FileOutcome("a,\udcff\n.jpg", "answered", (("Katze, قطة", 0.75), ("b", 0.25)), True, 1.5),
    FileOutcome("b.jpg", "refused", category="truncated", reason="cut"),
    FileOutcome(".c", "skipped", reason="hidden"),
    FileOutcome("=cmd|' /C calc'!A0", "answered", (("-1+1", 0.5), ("'@", 0.5))),
    FileOutcome("\t=1", "answered", (("+a;=b", 0.5), ("a-b", 0.5))),
]
ROWS = [
    {
        "file": "a,\\xff\n.jpg",
        "status": "answered",
        "label": "Katze, قطة",
        "probability": 0.75,
        "label_2": "b",
        "probability_2": 0.25,
        "known": True,
        "known_score": 1.5,
    },
    {"file": "b.jpg", "status": "refused", "category": "truncated", "reason": "cut"},
    {"file": ".c", "status": "skipped", "reason": "hidden"},
    *(
        {"file": file, "status": "answered", "label": first, "probability": 0.5}
        | {"label_2": second, "probability_2": 0.5}
        for file, first, second in (("=cmd|' /C calc'!A0", "-1+1", "'@"), ("\t=1", "+a;=b", "a-b"))
    ),
]


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            rows: list[dict[str, Any]] = list(csv.DictReader(file))
        for row in rows:
            assert not any(value.startswith(tuple("=+-@\t\r")) for value in row.values())
            row.update({k: v.removeprefix("'") for k, v in row.items()})
            numbers = ("probability", "known_score")
            row.update({k: float(v) for k, v in row.items() if k.startswith(numbers) and v})
            row.update({k: v == "True" for k, v in row.items() if k == "known" and v})
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    else:
        rows = pq.read_table(path).to_pylist()
    return [{name: value for name, value in row.items() if value} for row in rows]


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_the_same_rows_in_every_format(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{kind}"
    many = OUTCOMES * 900
    assert list(write_table(str(path), many, top=3)) == many
    assert read(path) == ROWS * 900
    assert list(tmp_path.iterdir()) == [path]


def test_a_table_is_whole_or_not_there(tmp_path: Path) -> None:
    def fail() -> Iterator[FileOutcome]:
        yield from OUTCOMES
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(write_table(str(tmp_path / "table.csv"), fail(), top=1))
    rows = write_table(str(tmp_path / "table.csv"), OUTCOMES, top=2)
    next(rows)
    [unfinished] = tmp_path.iterdir()
    # What SIGTERM and Ctrl-C do.
    for act in stopping._acts:
        act()
    assert not unfinished.exists()
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(StorageError, match=r"Cannot write .*folder\.csv: it is a folder\."):
        next(write_table(str(tmp_path / "folder.csv"), OUTCOMES, top=1))
    with pytest.raises(ConfigurationError, match=r"must end in \.csv, \.jsonl or \.parquet"):
        check_table(str(tmp_path / "table.xls"))
