"""The limits in SECURITY.md are those of the code."""

from __future__ import annotations

import re

import pytest

from components.contract import kinds
from pipeline_def.config import yaml_file
from pipeline_def.config.options import list_options
from tests.docs.markdown import ROOT

ROWS = re.findall(
    r"^\| [^|]+ \| ([\d,.]+) \| `(\S+)` \|$",
    (ROOT / "SECURITY.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


@pytest.mark.parametrize(("figure", "name"), ROWS)
def test_a_limit(figure: str, name: str) -> None:
    constants = {**vars(kinds), **vars(yaml_file)}
    value = constants[name] if name in constants else list_options()[name].default
    assert float(figure.replace(",", "")) == value


def test_there_are_limits() -> None:
    assert len(ROWS) >= 8
