"""Pages that are generated are current, and tables that repeat the code agree with it."""

import re

import pytest

from components.contract import error_messages
from components.storage import fetch
from docs import write_options
from pipeline_def.config import yaml_file
from pipeline_def.config.options import list_options
from tests.docs.markdown import PAGES, ROOT
from tests.ingest import test_quirks

LIMITS = re.findall(
    r"^\| [^|]+ \| ([\d,.]+) \| `(\S+)` \|$",
    (ROOT / "SECURITY.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
MOST_WORDS = 19_500


def test_the_options_page_is_current() -> None:
    page = write_options.PAGE.read_text(encoding="utf-8")
    assert page == write_options.render(), "run uv run python -m docs.write_options"
    assert all(f"`{name}`" in page for name in list_options())


def test_the_page_of_formats_is_current() -> None:
    page = test_quirks.PAGE.read_text(encoding="utf-8")
    assert page == test_quirks.render(), "run uv run python -m tests.ingest.test_quirks"


def test_limits_in_security_are_those_of_the_code() -> None:
    constants = {**vars(error_messages), **vars(fetch), **vars(yaml_file)}
    assert len(LIMITS) >= 6
    for figure, name in LIMITS:
        value = constants[name] if name in constants else list_options()[name].default
        assert float(figure.replace(",", "")) == value, name


@pytest.mark.parametrize(("column", "marker"), [(2, "< '3.12'"), (3, ">= '3.12'")])
def test_the_table_of_versions_agrees_with_pyproject(column: int, marker: str) -> None:
    pattern = rf'==([\d.]+) ; python_version {marker}"'
    pinned = set(re.findall(pattern, (ROOT / "pyproject.toml").read_text()))
    table = (ROOT / "docs/reference/support.md").read_text().split("\n\n")[2]
    cells = [row.split("|")[column] for row in table.splitlines()]
    named = re.findall(r"\d+\.\d+\.\d+", " ".join(cells))
    assert len(named) == 10
    assert set(named) - pinned == set()


def test_the_documentation_stays_short_and_its_lines_readable() -> None:
    texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in (*PAGES, "CHANGELOG.md")}
    assert sum(len(text.split()) for text in texts.values()) <= MOST_WORDS
    # Tables, commands and links cannot be broken.
    long = [
        f"{page}: {line}"
        for page, text in texts.items()
        for line in re.sub(r"^```.*?^```", "", text, flags=re.M | re.S).splitlines()
        if len(line) > 120 and not line.startswith("|") and "<!--" not in line
    ]
    assert not long, "\n".join(long)
