import re
from dataclasses import replace
from typing import Any

import pytest

from components.report.comparison.document import render as render_comparison
from components.report.page.document import render, render_section
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


def words(page: str) -> str:
    """The text of a page, its tags replaced by spaces, each space once."""
    body = re.sub(
        r"<style>.*?</style>|<script>.*?</script>|<svg.*?</svg>", "", page, flags=re.DOTALL
    )
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def say(section: str, **changes: Any) -> str:
    """The text of a section of the small page with `changes`."""
    return words(render_section(section, replace(report_sample.small(), **changes)))
