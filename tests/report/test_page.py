"""The page: what it says, without a browser, and how it looks and works, in Chromium."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from components.report.facts import ReportFacts
from components.report.page.document import render
from components.report.page.elements import clip, number, percent, shorten, signed, text
from tests.report import report_sample
from tests.report.browser import Page, browse, find_chromium
from tests.report.report_cases import make_facts

SAMPLES: dict[str, Callable[[], ReportFacts]] = {
    "small": report_sample.small,
    "nasty": report_sample.nasty,
    "empty": report_sample.empty,
    "huge": report_sample.huge,
}
VOID = ("meta", "img", "br")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: render(make()) for name, make in SAMPLES.items()}


class Document(HTMLParser):
    """Collects tags, identifiers, links and texts, and complains of what is not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.texts: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("href", "xlink:href", "src"):
                self.targets.append(str(value))
            assert not name.startswith("on")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.add(data)


def words(page: str) -> str:
    """The text of a page, its tags replaced by spaces, each space once."""
    body = re.sub(
        r"<style>.*?</style>|<script>.*?</script>|<svg.*?</svg>", "", page, flags=re.DOTALL
    )
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_is_well_formed_and_loads_nothing(pages: dict[str, str], name: str) -> None:
    document = Document(pages[name])
    assert not document.open
    assert pages[name].count("<script") == 1
    assert not document.tags & {"link", "iframe", "object", "embed", "base"}
    assert len(document.ids) == len(set(document.ids))
    for target in document.targets:
        assert target.startswith("data:image/jpeg;base64,") or target[1:] in document.ids
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\s\"'<>]+", pages[name])) <= namespaces
    assert not re.search(r"@import|url\((?!#)", pages[name])
    assert len(pages[name].encode()) < 10e6


def test_names_that_are_no_text_can_be_written() -> None:
    page = render(make_facts())
    assert any("\udcff" in label for label in make_facts().comparison.measures.labels)
    assert "byte �" in page.encode().decode()


def test_the_same_facts_give_the_same_page(pages: dict[str, str]) -> None:
    assert render(report_sample.small()) == pages["small"]


def test_labels_are_text_whatever_they_hold(pages: dict[str, str]) -> None:
    document = Document(pages["nasty"])
    assert set(report_sample.NASTY[:4]) <= document.texts
    assert "�override�and�control" in document.texts
    assert not re.search("nan|None|inf\\b", words(pages["nasty"]))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("small", "✓ Blessed: this model may replace the one in use. accuracy 0.926 is at least"),
        ("small", "Against baseline 17 +0.050 accuracy: ▲ better"),
        ("small", "Rejected 19 of 1,823 files"),
        ("small", "Span 3, version 1"),
        ("small", "Training took 1 h 23 min"),
        ("small", "Conflict: one , seven in train"),
        ("small", "Leak: in test, train".replace("test,", "test ,")),
        ("small", "and 3 more files"),
        ("small", "14 of 19 rejected files."),
        ("small", "6 more mistakes"),
        ("small", "The loss on eval was lowest in epoch 19: 0.482."),
        ("small", "1 image has several labels"),
        ("nasty", "✗ Not blessed: this model does not replace the one in use. recall 0.5 of"),
        ("nasty", "1 class has no image in the test split"),
        ("nasty", "There is no model in use to compare with."),
        ("nasty", "Top-3 accuracy"),
        ("nasty", "No file was rejected."),
        ("nasty", "No image was found twice."),
        ("nasty", "There is no ROC curve: the split has images of one class only."),
        ("nasty", "Loss in the last epoch: train 2.100, eval –."),
        ("nasty", "train : no anomaly."),
        ("empty", "The history of the training is not known."),
        ("empty", "Whether files were rejected is not known."),
        ("empty", "There are no samples."),
        ("empty", "The images were not sliced."),
        ("empty", "The model is wrong about no image."),
        ("huge", "50,000 1,000 classes, test split"),
        ("huge", "100 of 1,000 classes, the lowest F1 first"),
        ("huge", "Of 1,000 classes, these are the 50 that take part in most mistakes"),
        ("huge", "100 of 15,296 mistakes, the most confident first."),
        ("huge", "Accuracy by class with 95 % intervals, the 20 least accurate of 1,000."),
    ],
)
def test_the_page_says(pages: dict[str, str], name: str, said: str) -> None:
    assert said in words(pages[name])


def test_metrics_that_say_nothing_of_two_classes_are_left_out(pages: dict[str, str]) -> None:
    assert "Top-3" not in pages["empty"]
    assert "Top-5" not in pages["empty"]


def test_samples_without_augmentation_are_shown_once() -> None:
    facts = report_sample.small()
    samples = tuple(replace(sample, augmented=sample.seen) for sample in facts.samples)
    page = render(replace(facts, samples=samples))
    assert "training does not augment them" in page
    shown = sum(len(sample.seen) for sample in samples)
    assert page.count("as the model sees it") == shown > 0
    assert ", augmented" not in page


def test_slicings_that_say_nothing_new_are_not_drawn() -> None:
    facts = report_sample.small()
    classes = [part for part in facts.comparison.slices if part.slicing == "class"]
    folders = [replace(part, slicing="folder", value=f"x/{part.value}") for part in classes]
    whole = replace(classes[0], slicing="format", value="png")
    slices = (*classes, *folders, whole)
    comparison = replace(facts.comparison, slices=slices)
    said = words(render(replace(facts, comparison=comparison)))
    assert "By folder : the same as by class." in said
    assert "By format : all images are png ." in said
    assert "Accuracy by class with" in said
    assert "Accuracy by folder" not in said


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (number(-0.0314), "−0.031"),
        (number(float("nan")), "–"),
        (signed(0.05), "+0.050"),
        (signed(-0.0002), "−0.0002"),  # −0.000 would look like none
        (percent(1), "100\N{NO-BREAK SPACE}%"),
        (percent(0.9996), "over 99.9\N{NO-BREAK SPACE}%"),  # 100 % would be wrong
        (percent(0.0004), "below 0.1\N{NO-BREAK SPACE}%"),
        (percent(0.123), "12.3\N{NO-BREAK SPACE}%"),
        (percent(0.2), "20.0\N{NO-BREAK SPACE}%"),  # in a column with others
        (shorten("abcdefghij", 5), "ab…ij"),
        (text("<b>\x00\udcff"), "<bdi>&lt;b&gt;\ufffd\ufffd</bdi>"),  # a file name that is no UTF-8
        (clip("'abc'", most=3), '<bdi title="&#x27;abc&#x27;">&#x27;…&#x27;</bdi>'),
    ],
)
def test_pieces(made: str, expected: str) -> None:
    assert made == expected


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if not find_chromium():
        pytest.skip("there is no Chromium")
    with browse(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture(scope="module")
def folder(pages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name, page in pages.items():
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

# Marks of figures against the page: the least contrast of the colours that they are drawn in.
MARKS = """(() => {
  const root = getComputedStyle(document.documentElement)
  const light = name => [1, 3, 5].map(i => parseInt(hex(name).slice(i, i + 2), 16) / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0)
  const hex = name => root.getPropertyValue('--' + name).trim().replace(/^#(.)(.)(.)$/,
    '#$1$1$2$2$3$3')
  return Math.min(...['first', 'second', 'third', 'soft'].map(name => {
    const [low, high] = [light(name), light('back')].sort((a, b) => a - b)
    return (high + .05) / (low + .05)
  }))
})()"""


@pytest.mark.parametrize(
    ("name", "width"),
    [*itertools.product(["small", "nasty", "empty"], [390, 1440]), ("huge", 390)],
)
def test_layout_contrast_and_silence(browser: Page, folder: Path, name: str, width: int) -> None:
    browser.open(folder / f"{name}.html", width=width)
    browser.evaluate(OPEN_ALL)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    for scheme in ("light", "dark"):
        browser.choose_scheme(scheme)
        assert browser.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
        assert browser.evaluate(CONTRAST) == []
        assert browser.evaluate(MARKS) >= 3
    assert all(browser.evaluate(DECODE))
    for method, event in browser.events:
        assert method not in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"), event
        assert method != "Log.entryAdded", event
        if method == "Network.requestWillBeSent":
            assert event["request"]["url"].startswith(("file:", "data:"))


def test_text_in_figures_is_not_too_small_on_a_phone(browser: Page, folder: Path) -> None:
    browser.open(folder / "small.html", width=390)
    sizes = browser.evaluate(
        """[...document.querySelectorAll('.plot svg text')].map(text => {
          const {a, b} = text.getCTM()
          return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b) })"""
    )
    assert min(sizes) >= 10


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


@pytest.mark.parametrize("name", ["small", "nasty", "empty"])
def test_what_a_screen_reader_is_told(browser: Page, folder: Path, name: str) -> None:
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


def test_the_keyboard_reaches_everything_that_moves(browser: Page, folder: Path) -> None:
    browser.open(folder / "small.html", width=390)
    expected = browser.evaluate(
        """[...document.querySelectorAll('a, summary, [tabindex="0"]')]
          .filter(element => element.checkVisibility({contentVisibilityAuto: true}))
          .map((element, place) => element.dataset.place = String(place))"""
    )
    reached = []
    for _ in expected:
        for kind in ("keyDown", "keyUp"):
            key = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
            browser.call("Input.dispatchKeyEvent", type=kind, **key)
        reached.append(browser.evaluate("document.activeElement.dataset.place"))
    assert reached == expected
    wide = "element.scrollWidth > element.clientWidth && element.tabIndex !== 0"
    scrollers = f"[...document.querySelectorAll('.scroll')].filter(element => {wide}).length"
    assert browser.evaluate(scrollers) == 0


def test_a_frame_without_scripts_shows_everything(
    browser: Page, folder: Path, pages: dict[str, str]
) -> None:
    """Kubeflow's interface hands the page to a sandboxed frame as text."""
    host = folder / "host.html"
    page = escape(pages["small"])
    host.write_text(f'<iframe sandbox="allow-same-origin" width="390" srcdoc="{page}"></iframe>')
    browser.open(host, width=1440)
    browser.evaluate("window.inner = document.querySelector('iframe').contentDocument; 0")
    drawn = """[...inner.querySelectorAll('.plot svg')]
      .every(svg => svg.checkVisibility() && svg.getBoundingClientRect().height > 50)"""
    assert browser.evaluate("inner.querySelectorAll('.plot svg').length") > 20
    assert browser.evaluate(drawn)
    part = "inner.querySelector('details')"
    assert not browser.evaluate(f"{part}.querySelector('table').checkVisibility()")
    browser.evaluate(f"{part}.querySelector('summary').click()")
    assert browser.evaluate(f"{part}.querySelector('table').checkVisibility()")


def test_links_in_a_frame_that_has_no_address(
    browser: Page, folder: Path, pages: dict[str, str]
) -> None:
    host = folder / "host.html"
    page = escape(pages["small"])
    host.write_text(
        '<iframe sandbox="allow-scripts allow-same-origin" width="390" height="600" '
        f'srcdoc="{page}"></iframe>'
    )
    browser.open(host, width=1440)
    browser.evaluate("window.inner = document.querySelector('iframe').contentDocument; 0")
    for section in ("mistakes", "files"):
        browser.evaluate(f"inner.querySelector('nav a[href=\"#{section}\"]').click()")
        top = browser.evaluate(f"inner.querySelector('#{section}').getBoundingClientRect().top")
        assert 0 <= top < 600
    assert browser.evaluate("document.querySelector('iframe').contentDocument === inner")
