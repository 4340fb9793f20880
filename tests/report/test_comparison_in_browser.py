"""How the page of two runs looks, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from components.report.comparison.document import render
from tests.report.browser import Page, browse, find_chromium
from tests.report.samples.comparison_sample import compare, draw_answers
from tests.report.test_page_in_browser import CONTRAST, DECODE, OPEN_ALL, SIZES_IN_FIGURES

pytestmark = [pytest.mark.xdist_group("page"), pytest.mark.slow]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, Path]]:
    if not find_chromium():
        pytest.skip("there is no Chromium")
    folder = tmp_path_factory.mktemp("comparison")
    facts = compare(
        draw_answers(0.6),
        draw_answers(0.8, seed=1),
        configuration={"training." + "long_name_" * 12: "value" * 40},
        examples={"train": {"<b>" * 30: 7}},
    )
    path = folder / "comparison.html"
    path.write_text(render(facts), encoding="utf-8")
    with browse(folder / "chromium") as page:
        yield page, path


@pytest.mark.parametrize("width", [390, 1440])
def test_layout_contrast_and_silence(opened: tuple[Page, Path], width: int) -> None:
    page, path = opened
    page.open(path, width=width)
    page.evaluate(OPEN_ALL)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for scheme in ("light", "dark"):
        page.choose_scheme(scheme)
        assert page.evaluate(CONTRAST) == []
    assert all(page.evaluate(DECODE))
    assert page.evaluate("document.querySelectorAll('.plot svg').length") == 2
    assert min(page.evaluate(SIZES_IN_FIGURES)) >= 10
    for method, event in page.events:
        assert method not in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"), event
        assert method != "Log.entryAdded", event
        if method == "Network.requestWillBeSent":
            assert event["request"]["url"].startswith(("file:", "data:"))
