"""The versions that docs/reference/support.md names are those of each set."""

from __future__ import annotations

import re

import pytest

from tests.docs.markdown import ROOT


@pytest.mark.parametrize(("column", "marker"), [(2, "< '3.12'"), (3, ">= '3.12'")])
def test_the_table_names_the_versions_of_each_set(column: int, marker: str) -> None:
    pattern = rf'==([\d.]+) ; python_version {marker}"'
    pinned = set(re.findall(pattern, (ROOT / "pyproject.toml").read_text()))
    table = (ROOT / "docs/reference/support.md").read_text().split("\n\n")[2]
    cells = [row.split("|")[column] for row in table.splitlines()]
    named = re.findall(r"\d+\.\d+\.\d+", " ".join(cells))
    assert len(named) == 10
    assert set(named) - pinned == set()
