from __future__ import annotations

import pytest

from components.report.comparison.document import render as render_comparison
from components.report.page.document import render
from tests.report.samples import comparison_sample, report_sample

SAMPLES = ("small", "nasty", "empty", "huge", "comparison")


class Pages(dict[str, str]):
    """The page of each sample, rendered once, on demand."""

    def __missing__(self, name: str) -> str:
        if name == "comparison":
            self[name] = render_comparison(comparison_sample.nasty())
        else:
            self[name] = render(getattr(report_sample, name)())
        return self[name]


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    return Pages()
