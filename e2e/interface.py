"""Kubeflow's interface in headless Chromium: pictures of a run, for people to look at."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from e2e.commands import Failure
from tests.report.browser import Page, browse, find_chromium

# Seconds until the page has drawn what it asks the server for.
_DRAWN = 60
_SIZE = {"width": 1600, "height": 1100, "deviceScaleFactor": 1, "mobile": False}


def photograph(url: str, folder: Path, *, words: list[str], name: str) -> Path:
    """Open a page, wait until it shows all of `words`, and write its picture.

    Raises:
        Failure: there is no Chromium, or the page does not show them within a minute.
    """
    if find_chromium() is None:
        raise Failure(
            "Chromium is missing: install it, or leave out the pictures with --no-browser."
        )
    picture = folder / f"{name}.png"
    # Chromium may still write to its profile when it has been told to end.
    folder_of_profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with folder_of_profile as profile, browse(Path(profile)) as page:
        page.call("Emulation.setDeviceMetricsOverride", **_SIZE)
        page.call("Page.navigate", url=url)
        missing = _wait(page, words)
        page.photograph(picture)
    if missing:
        raise Failure(f"{url} does not show {', '.join(missing)}; see {picture}.")
    return picture


def _wait(page: Page, words: list[str]) -> list[str]:
    """Wait until the page shows the words; return those that it does not."""
    deadline, missing = time.monotonic() + _DRAWN, words
    while missing and time.monotonic() < deadline:
        shown = str(page.evaluate("document.body ? document.body.innerText : ''"))
        missing = [word for word in words if word not in shown]
        time.sleep(0.2)
    return missing
