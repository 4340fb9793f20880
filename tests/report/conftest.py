import re
from dataclasses import replace
from typing import Any, TextIO

import pytest

from components.report.comparison import render_comparison
from components.report.page.document import render, render_section
from tests.report.samples import comparison_sample, report_sample

SAMPLES = ("small", "nasty", "comparison")
_CANVAS = "components.report.page.drawing.FigureCanvasSVG"


class Pages(dict[str, str]):
    """The page of each sample, rendered once, on demand."""

    def __missing__(self, name: str) -> str:
        if name == "comparison":
            self[name] = render_comparison(comparison_sample.nasty())
        else:
            self[name] = render(getattr(report_sample, name)())
        return self[name]


class TextPages(Pages):
    """The same pages with empty figures, of which drawing takes most of the time."""

    def __missing__(self, name: str) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_CANVAS, BlankCanvas)
            return super().__missing__(name)


class BlankCanvas:
    def __init__(self, figure: object) -> None:
        pass

    def print_svg(self, file: TextIO, **options: object) -> None:
        file.write("<svg></svg>")


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    return Pages()


@pytest.fixture(scope="session")
def text_pages() -> dict[str, str]:
    return TextPages()


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_CANVAS, BlankCanvas)


def words(page: str) -> str:
    """The text of a page, its tags replaced by spaces, each space once."""
    body = re.sub(
        r"<style>.*?</style>|<script>.*?</script>|<svg.*?</svg>", "", page, flags=re.DOTALL
    )
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def say(section: str, **changes: Any) -> str:
    """The text of a section of the small page with `changes`."""
    return words(render_section(section, replace(report_sample.small(), **changes)))
