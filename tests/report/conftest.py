from __future__ import annotations

import pytest

from components.report.page.document import render
from tests.report.samples import report_sample

SAMPLES = ("small", "nasty", "empty", "huge")


class Pages(dict[str, str]):
    """The page of each sample, drawn once, when it is asked for.

    `small` has everything, `huge` a lot of it.
    """

    def __missing__(self, name: str) -> str:
        self[name] = render(getattr(report_sample, name)())
        return self[name]


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    return Pages()
