"""How the page of the review looks and works, in Chromium."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from components.ingest.source.corrections import load_corrections
from tests.apps.review.reviewed import draw_images, reviewing, suspect, write_output
from tests.apps.serve.test_page_in_browser import check_silence, wait
from tests.report.browser import Page, browse
from tests.report.test_page_in_browser import CONTRAST

pytestmark = [pytest.mark.xdist_group("page"), pytest.mark.slow]

HOSTILE = "<img src=x onerror=alert(1)>\u202e" + "long " * 2000
SHOWN = "(it => !it.hidden && it.naturalWidth > 0)(document.querySelector('#picture'))"
DECIDED = "document.querySelector('#count').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browse(tmp_path_factory.mktemp("chromium")) as page:
        yield page


def make_output(folder: Path, labels: list[str]) -> Path:
    """Six suspects: the last one with every hostile text, the one before without a proposal."""
    images = draw_images(6)
    paths = [*images]
    rows = [
        suspect(path, images[path], 0.9 - n / 10, neighbors=(paths[0], paths[1]))
        for n, path in enumerate(paths[:4])
    ]
    rows.append(suspect(paths[4], images[paths[4]], 0.2, proposed="", reason="dark"))
    hostile = {"label": HOSTILE, "neighbors": (HOSTILE,)}
    rows.append(suspect(paths[5], images[paths[5]], 0.1, **hostile))
    return write_output(folder, images, rows, labels)


def text_of(page: Page, name: str) -> str:
    return str(page.evaluate(f"document.querySelector('#{name}').textContent"))


def test_by_keyboard_alone(browser: Page, tmp_path: Path) -> None:
    output = make_output(tmp_path, ["blue", "green", "red"])
    with reviewing(output) as port:
        address = f"http://127.0.0.1:{port}/"
        browser.visit(address, width=1440)
        wait(browser, SHOWN)
        assert (text_of(browser, "given"), text_of(browser, "proposed")) == ("blue", "red")
        wait(browser, "document.querySelectorAll('.neighbors img').length === 2")
        browser.press("r", "k", "n", *"odd", "Enter", "x")
        wait(browser, f"{DECIDED} === '3 of 6 decided'")
        assert text_of(browser, "spoken").startswith(
            "Image 4 of 6. Probability that the label is wrong, 60%. Given label blue."
        )
        browser.press("z")
        wait(browser, f"{DECIDED} === '2 of 6 decided'")
        browser.press("3")
        wait(browser, f"{DECIDED} === '3 of 6 decided'")
        browser.press("ArrowLeft")
        wait(browser, "document.querySelector('#decided').textContent.includes('green')")
        browser.visit(address, width=1440)
        wait(browser, f"{SHOWN} && location.hash.length > 60")
        assert text_of(browser, "place").startswith("4 of 6"), "it goes on where it was"
        browser.press("ArrowRight", "ArrowRight", "r")
        wait(browser, "document.querySelector('#chooser').open")
        browser.press(*"lu", "Enter")
        wait(browser, f"{DECIDED} === '4 of 6 decided'")
        check_silence(browser, address)
    rows = [
        (row.action, row.to_label, row.why)
        for row in load_corrections(f"{output}/corrections.csv").rows
    ]
    assert rows == [
        ("relabel", "red", "label 0.90"),
        ("keep", "", "label 0.80"),
        ("relabel", "green", "label 0.70"),
        ("relabel", "blue", "dark 0.20"),
    ]


def test_several_images_at_once(browser: Page, tmp_path: Path) -> None:
    output = make_output(tmp_path, ["blue", "green", "red"])
    cells = "[...document.querySelectorAll('.cells button')].map(cell => cell.innerText)"
    with reviewing(output) as port:
        address = f"http://127.0.0.1:{port}/"
        browser.visit(address, width=1440)
        wait(browser, SHOWN)
        browser.press("k", "g")
        wait(browser, "document.querySelector('#grid').open")
        assert browser.evaluate(cells) == [], "the image with 90% is decided"
        browser.evaluate("document.querySelector('#least').value = 60")
        browser.evaluate("document.querySelector('#least').dispatchEvent(new Event('input'))")
        assert browser.evaluate(cells) == ["green → red\n80%", "blue → red\n60%"]
        wait(browser, "[...document.querySelectorAll('.cells img')].every(it => it.naturalWidth)")
        assert browser.evaluate(CONTRAST) == []
        for said in ("Relabel 1 image", "Relabel 2 images"):
            browser.evaluate("document.querySelectorAll('.cells button')[1].click()")
            assert text_of(browser, "accept") == said
        for _ in range(2):
            browser.evaluate("document.querySelector('#accept').click()")
        wait(browser, f"{DECIDED} === '3 of 6 decided'")
        wait(browser, "document.querySelector('#place').textContent.startsWith('3 of 6')")
        rows = load_corrections(f"{output}/corrections.csv").rows
        assert [(row.action, row.to_label, row.why) for row in rows] == [
            ("keep", "", "label 0.90"),
            ("relabel", "red", "one of 2 at once, at least 60% (label 0.80)"),
            ("relabel", "red", "one of 2 at once, at least 60% (label 0.60)"),
        ]
        browser.press("z")
        wait(browser, f"{DECIDED} === '1 of 6 decided'")
        check_silence(browser, address)


def test_hostile_texts_and_a_thousand_labels(browser: Page, tmp_path: Path) -> None:
    names = [f"label {number}" for number in range(997)]
    with reviewing(make_output(tmp_path, [*names, "blue", "green"])) as port:
        address = f"http://127.0.0.1:{port}/"
        browser.visit(address, width=390)
        wait(browser, SHOWN)
        browser.press(*["ArrowRight"] * 4)
        wait(browser, "document.querySelector('#given').textContent.startsWith('<img')")
        wait(browser, SHOWN)
        assert browser.evaluate("document.querySelectorAll('img[src=x]').length") == 0
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
        browser.press("l")
        wait(browser, "document.querySelector('#chooser').open")
        assert browser.evaluate("document.querySelectorAll('#choices li').length") == 50
        for scheme in ("light", "dark"):
            browser.choose_scheme(scheme)
            assert browser.evaluate(CONTRAST) == []
        browser.press(*"el 77")
        assert browser.evaluate("document.querySelector('[aria-selected=true]').innerText") == (
            "749\nlabel 77"
        )
        browser.press("Escape")
        check_silence(browser, address)
