"""Layout and behavior of the page in Chromium."""

import itertools
import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import Page, browse
from tests.report.conftest import SAMPLES
from tests.report.samples import report_sample

pytestmark = [pytest.mark.xdist_group("page"), pytest.mark.slow]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browse(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture(scope="module")
def folder(pages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name, page in ((name, pages[name]) for name in SAMPLES):
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return folder


OPEN_ALL = "document.querySelectorAll('details').forEach(part => { part.open = true; })"
DECODE = """Promise.all([...document.images].map(async image => {
  image.loading = 'eager'; await image.decode(); return image.naturalWidth > 0 && image.alt !== ''
}))"""

# Texts and what is behind them, from the computed styles.
CONTRAST = """(() => {
  const parse = colour => (colour.match(/[\\d.]+/g) || []).map(Number)
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0)
  const behind = element => {
    const [r, g, b, alpha = 1] = parse(getComputedStyle(element).backgroundColor)
    if (alpha === 1) return [r, g, b]
    const below = element.parentElement ? behind(element.parentElement) : [255, 255, 255]
    return [r, g, b].map((v, i) => v * alpha + below[i] * (1 - alpha))
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  const low = new Set()
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement
    if (!texts.currentNode.data.trim() || !element.getClientRects().length) continue
    const style = getComputedStyle(element)
    const colour = element.closest('svg') ? style.fill : style.color
    const [low_, high] = [light(parse(colour)), light(behind(element))].sort((a, b) => a - b)
    const ratio = (high + .05) / (low_ + .05)
    if (!(ratio >= 4.5)) low.add(texts.currentNode.data + ': ' + ratio.toFixed(2))
  }
  return [...low]
})()"""

SIZES_IN_FIGURES = """[...document.querySelectorAll('.plot svg text')].map(text => {
  const {a, b} = text.getCTM()
  return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b) })"""


@pytest.mark.parametrize(
    ("name", "width"), [("small", 390), ("small", 1440), ("nasty", 390), ("comparison", 390)]
)
def test_layout_contrast_and_silence(browser: Page, folder: Path, name: str, width: int) -> None:
    browser.open(folder / f"{name}.html", width=width)
    browser.evaluate(OPEN_ALL)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    for scheme in ("light", "dark"):
        browser.choose_scheme(scheme)
        assert browser.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
        assert browser.evaluate(CONTRAST) == []
    assert all(browser.evaluate(DECODE))
    # On a phone, figures shrink.
    assert all(size >= 10 for size in browser.evaluate(SIZES_IN_FIGURES))
    for method, event in browser.events:
        assert method not in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"), event
        assert method != "Log.entryAdded", event
        if method == "Network.requestWillBeSent":
            assert event["request"]["url"].startswith(("file:", "data:"))


def read_tree(page: Page) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Role, name and properties of each node that a screen reader is told of."""
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    return [
        (
            node["role"]["value"],
            node.get("name", {}).get("value", ""),
            {entry["name"]: entry["value"].get("value") for entry in node.get("properties", ())},
        )
        for node in nodes
        if not node["ignored"]
    ]


@pytest.mark.parametrize("name", ["small", "nasty"])
def test_accessible_names(browser: Page, folder: Path, name: str) -> None:
    browser.open(folder / f"{name}.html", width=1440)
    browser.evaluate(OPEN_ALL)
    tree = read_tree(browser)
    named = ("image", "img", "figure", "table", "region", "navigation", "graphics-document")
    roles = [role for role, _, _ in tree]
    assert {"image", "figure", "table", "region", "navigation", "main"} <= set(roles)
    assert [role for role, title, _ in tree if role in named and not title.strip()] == []
    levels = [properties["level"] for role, _, properties in tree if role == "heading"]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    figures = browser.evaluate("document.querySelectorAll('svg').length")
    assert browser.evaluate("document.querySelectorAll('.plot[role=img] > svg').length") == figures


def test_everything_is_reachable_by_keyboard(browser: Page, folder: Path) -> None:
    browser.open(folder / "small.html", width=390)
    expected = browser.evaluate(
        """[...document.querySelectorAll('a, summary, button, select, [tabindex="0"]')]
          .filter(element => element.checkVisibility({contentVisibilityAuto: true}))
          .map((element, place) => element.dataset.place = String(place))"""
    )
    reached = []
    for _ in expected:
        browser.press("Tab")
        reached.append(browser.evaluate("document.activeElement.dataset.place"))
    assert reached == expected
    wide = "element.scrollWidth > element.clientWidth && element.tabIndex !== 0"
    scrollers = f"[...document.querySelectorAll('.scroll')].filter(element => {wide}).length"
    assert browser.evaluate(scrollers) == 0


SHOWN = """[...document.querySelectorAll('.thumbs > li')].filter(card => card.checkVisibility())
  .map(card => [card.dataset.label, card.dataset.predicted])"""


def test_images_are_browsed_and_enlarged_by_keyboard(browser: Page, folder: Path) -> None:
    browser.open(folder / "small.html", width=390)
    assert browser.evaluate(SHOWN) == []
    cell = "document.querySelector('.matrix td:not(.right) a')"
    pair = browser.evaluate(f"[{cell}.dataset.label, {cell}.dataset.predicted]")
    browser.evaluate(f"{cell}.focus()")
    browser.press("Enter")
    shown = browser.evaluate(SHOWN)
    assert shown
    assert all(card == pair for card in shown)
    assert f"{len(shown)} of " in browser.evaluate("document.activeElement.textContent")
    browser.evaluate(
        """const answer = document.querySelector('select[name=result]')
        answer.value = 'right'; answer.dispatchEvent(new Event('change', {bubbles: true}))"""
    )
    assert browser.evaluate(SHOWN) == []
    browser.evaluate(f"document.querySelector('.matrix th a[data-label=\"{pair[0]}\"]').click()")
    assert {label for label, _ in browser.evaluate(SHOWN)} == {pair[0]}
    first, second = ".thumbs li:not([hidden]) .enlarge", "#enlarged p"
    browser.evaluate(f"document.querySelector('{first}').focus()")
    browser.press("Enter")
    said = browser.evaluate(f"document.querySelector('{second}').textContent")
    assert said == browser.evaluate(f"document.querySelector('{first} img').alt")
    browser.press("ArrowRight")
    assert browser.evaluate(f"document.querySelector('{second}').textContent") != said
    assert browser.evaluate("document.querySelector('#enlarged img').clientWidth") > 200
    browser.press("Escape")
    assert not browser.evaluate("document.querySelector('#enlarged').open")
    assert browser.evaluate("document.activeElement.className") == "enlarge"
    browser.evaluate("document.querySelector('button[type=reset]').click()")
    browser.evaluate("new Promise(done => setTimeout(done, 50))")
    assert browser.evaluate("document.querySelectorAll('.thumbs > li[hidden]').length") == 0


def open_frame(browser: Page, folder: Path, page: str, sandbox: str) -> None:
    """Open a page as Kubeflow's interface does, which hands it to a sandboxed frame as text."""
    host, size = folder / "host.html", 'width="390" height="600"'
    host.write_text(f'<iframe sandbox="{sandbox}" {size} srcdoc="{escape(page)}"></iframe>')
    browser.open(host, width=1440)
    browser.evaluate("window.inner = document.querySelector('iframe').contentDocument; 0")


def test_a_frame_without_scripts(browser: Page, folder: Path, pages: dict[str, str]) -> None:
    open_frame(browser, folder, pages["small"], "allow-same-origin")
    drawn = """[...inner.querySelectorAll('.plot svg')]
      .every(svg => svg.checkVisibility() && svg.getBoundingClientRect().height > 50)"""
    assert browser.evaluate("inner.querySelectorAll('.plot svg').length") == 8
    assert browser.evaluate(drawn)
    part = "inner.querySelector('details:has(table)')"
    assert not browser.evaluate(f"{part}.querySelector('table').checkVisibility()")
    browser.evaluate(f"{part}.querySelector('summary').click()")
    assert browser.evaluate(f"{part}.querySelector('table').checkVisibility()")


def test_matrix_links_work_without_scripts(
    browser: Page, folder: Path, pages: dict[str, str]
) -> None:
    plain = folder / "plain.html"
    plain.write_text(re.sub("<script>.*?</script>", "", pages["small"], flags=re.DOTALL))
    browser.open(plain, width=1440)
    assert not browser.evaluate("document.querySelector('#filter').checkVisibility()")
    cell = "document.querySelector('.matrix td a')"
    assert not browser.evaluate(f"document.querySelector({cell}.hash).checkVisibility()")
    browser.evaluate(f"{cell}.click()")
    browser.evaluate("new Promise(done => setTimeout(done, 200))")
    assert browser.evaluate(f"document.querySelector({cell}.hash).checkVisibility()")


def test_links_in_a_frame_without_an_address(
    browser: Page, folder: Path, pages: dict[str, str]
) -> None:
    open_frame(browser, folder, pages["small"], "allow-scripts allow-same-origin")
    for section in ("mistakes", "files"):
        browser.evaluate(f"inner.querySelector('nav a[href=\"#{section}\"]').click()")
        top = browser.evaluate(f"inner.querySelector('#{section}').getBoundingClientRect().top")
        assert 0 <= top < 600
    assert browser.evaluate("document.querySelector('iframe').contentDocument === inner")


# Figures without height, and pairs of tables and figures that lie over each other.
ON_PAPER = """(() => {
  const blocks = [...document.querySelectorAll('main figure, main table')]
    .filter(block => block.checkVisibility()).map(block => [block, block.getBoundingClientRect()])
  const empty = [...document.querySelectorAll('main section > figure, main .columns figure')]
    .filter(figure => !figure.closest('.groups') && !figure.getBoundingClientRect().height)
  const over = blocks.flatMap(([one, a]) => blocks.filter(([two, b]) => one !== two
    && !one.contains(two) && !two.contains(one) && a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 1 && b.top < a.bottom - 1).map(([two]) => one.textContent.slice(0, 80)))
  const shown = [...document.querySelectorAll('nav, .filter')].filter(of => of.checkVisibility())
  return [empty.length, over, shown.length]
})()"""


@pytest.mark.parametrize("name", SAMPLES)
def test_on_paper_nothing_overlaps_and_no_figure_is_lost(
    browser: Page, folder: Path, name: str
) -> None:
    # A4 without margins of 10 mm, in CSS pixels.
    browser.open(folder / f"{name}.html", width=718)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate(ON_PAPER) == [0, [], 0]
    browser.call("Emulation.setEmulatedMedia", media="")


def test_a_point_of_the_map_shows_its_name_and_picture(browser: Page, folder: Path) -> None:
    browser.open(folder / "small.html", width=1440)
    browser.evaluate(
        """const chart = document.querySelector('.map'); chart.scrollIntoView()
        const ring = chart.querySelector('circle:not(.mark)').getBoundingClientRect()
        const place = {clientX: ring.x + ring.width / 2, clientY: ring.y + ring.height / 2}
        chart.dispatchEvent(new PointerEvent('pointermove', {...place, bubbles: true}))
        chart.dispatchEvent(new MouseEvent('click', {...place, bubbles: true}))"""
    )
    name = browser.evaluate("document.querySelector('.pointed span').textContent")
    suspects = report_sample.small().suspects
    assert suspects
    assert name in {row.path for row in suspects.rows}
    assert browser.evaluate("document.querySelectorAll('.pointed img').length") == 1
    assert name in browser.evaluate("document.querySelector('#enlarged[open] p').textContent")
