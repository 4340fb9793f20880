from __future__ import annotations

import pytest

from components.report.page.document import render
from tests.report import report_sample


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    """The page of each sample, drawn once: `small` has everything, `huge` a lot of it."""
    samples = (report_sample.small, report_sample.nasty, report_sample.empty, report_sample.huge)
    return {make.__name__: render(make()) for make in samples}
