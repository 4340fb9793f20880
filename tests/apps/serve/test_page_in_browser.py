"""How the page of the server looks and works, in Chromium."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.apps.serve.serving import FakeModel, png, serving
from tests.report.browser import Page, browse
from tests.report.test_page_in_browser import CONTRAST

pytestmark = [pytest.mark.xdist_group("page"), pytest.mark.slow]

# Seconds that Chromium has for something that takes a fraction of one.
_PATIENCE = 20


class PageModel(FakeModel):
    """Answers with the outputs of an exported model."""

    def __init__(self) -> None:
        super().__init__("1795347296")
        self.signatures["explain"] = {}
        long = "a label of one very long word " + "x" * 80
        self.labels = self.names = ["red", "green", "blue", long, "e", "f"]

    def _answer(self, signature: str, file: bytes) -> dict[str, Any]:
        _, shares = super()._answer("serving_default", file).values()
        if signature == "explain":
            heat = [[x / 31 for x in range(32)] for _ in range(32)]
            return {"heat_map": heat, "label": b"red", "seen_bytes": file}
        labels = [name.encode() for name in self.names]
        shares = [*shares, 0.0, 0.0, 0.0]
        return {"label": b"red", "labels": labels, "probabilities": shares, "error": b""}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, str]]:
    flags = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    with (
        serving(PageModel(), tmp_path_factory.mktemp("pushed")) as port,
        browse(tmp_path_factory.mktemp("chromium"), *flags) as page,
    ):
        yield page, f"http://127.0.0.1:{port}/"


def wait(page: Page, condition: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, (condition, page.evaluate("document.body.innerText"))
        time.sleep(0.05)


def drop(page: Page, *names: str, content: bytes) -> None:
    page.evaluate(
        f"""(() => {{
          const carried = new DataTransfer()
          for (const name of {json.dumps(names)}) {{
            carried.items.add(new File([new Uint8Array({[*content]})], name))
          }}
          const options = {{ dataTransfer: carried, bubbles: true, cancelable: true }}
          document.body.dispatchEvent(new DragEvent('drop', options))
        }})()"""
    )


def check_silence(page: Page, address: str, allowed: Sequence[str] = ()) -> None:
    """Nothing was logged, and nothing asked of any other server."""
    for method, event in page.events:
        assert method not in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"), event
        if method == "Log.entryAdded":
            assert any(text in event["entry"]["text"] for text in allowed), event
        if method == "Network.requestWillBeSent":
            assert event["request"]["url"].startswith((address, "data:", "blob:"))


SWITCH_SHOWN = "!document.querySelector('#switch').hidden"
HEAT_SHOWN = "!document.querySelector('#heat').hidden"


@pytest.mark.parametrize("width", [390, 1440])
def test_a_dropped_picture_gets_labels_and_a_heat_map(place: tuple[Page, str], width: int) -> None:
    page, address = place
    page.visit(address, width=width)
    drop(page, "a photo.png", content=png(180, 50, 25))
    wait(page, SWITCH_SHOWN)
    assert page.evaluate("document.activeElement.textContent") == "red 70.6%"
    assert "Knows only: a label of" in page.evaluate("document.body.innerText")
    order = "document.querySelector('#picture').compareDocumentPosition(document.activeElement)"
    assert page.evaluate(order) == 4, "the picture is first"
    shown = page.evaluate(
        "[...document.querySelectorAll('.bars li:not([hidden])')].map(b => b.innerText)"
    )
    assert [text.split() for text in shown[:2]] == [["green", "19.6%"], ["blue", "9.8%"]]
    assert len(shown) == 4
    assert shown[2].endswith("under 0.1%")
    page.evaluate("document.querySelector('#more').click()")
    assert page.evaluate("document.querySelectorAll('.bars li:not([hidden])').length") == 5
    assert page.evaluate("document.querySelector('#heat').hidden"), "nobody has asked for it"
    page.evaluate("document.querySelector('#shown').click()")
    wait(page, HEAT_SHOWN)
    opaque = page.evaluate(
        "(() => { const c = document.querySelector('#heat'); const d = c.getContext('2d')"
        ".getImageData(0, 0, 32, 32).data; return [d[0], d[4 * 31]] })()"
    )
    assert opaque[0] < 40
    assert opaque[1] > 240
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for scheme in ("light", "dark"):
        page.choose_scheme(scheme)
        assert page.evaluate(CONTRAST) == []
    check_silence(page, address)


def test_several_pictures_become_cards_that_open(place: tuple[Page, str]) -> None:
    page, address = place
    page.visit(address, width=390)
    drop(page, "a.png", "b.png", "c.png", content=png(180, 50, 25))
    cards = "[...document.querySelectorAll('.cards li')].map(b => b.innerText)"
    wait(page, f"{cards}.length === 3 && document.querySelector('#status').textContent === ''")
    assert [text.split() for text in page.evaluate(cards)] == [["red", "70.6%"]] * 3
    assert page.evaluate("document.querySelector('#result').hidden")
    page.evaluate("document.querySelector('.cards li:nth-child(2) button').click()")
    wait(page, SWITCH_SHOWN)
    assert page.evaluate("document.querySelector('#caption').textContent") == "b.png"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(CONTRAST) == []
    check_silence(page, address)


def test_by_keyboard_alone(place: tuple[Page, str]) -> None:
    page, address = place
    page.visit(address, width=390)
    page.press("Tab")
    assert page.evaluate("document.activeElement.id") == "choose"
    page.press("Tab", "Enter")
    wait(page, "document.querySelector('#video').videoWidth > 0")
    assert page.evaluate("document.activeElement.id") == "take"
    page.press("Enter")
    wait(page, SWITCH_SHOWN)
    page.evaluate("document.querySelector('#shown').click()")
    wait(page, HEAT_SHOWN)
    assert "camera.png" in page.evaluate("document.querySelector('#caption').textContent")
    assert page.evaluate("document.querySelector('#video').srcObject") is None
    page.evaluate("document.querySelector('#shown').click()")
    assert page.evaluate("document.querySelector('#heat').hidden")
    check_silence(page, address)


def test_a_chosen_file_that_is_no_image_gets_a_sentence(
    place: tuple[Page, str], tmp_path: Path
) -> None:
    page, address = place
    page.visit(address, width=390)
    (tmp_path / "notes.png").write_bytes(b"no image")
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    page.call("DOM.setFileInputFiles", files=[str(tmp_path / "notes.png")], nodeId=node)
    said = "document.querySelector('#status').textContent"
    wait(page, f"{said}.includes('not an image')")
    assert page.evaluate("document.querySelector('#result').hidden")
    check_silence(page, address, allowed=["400"])
