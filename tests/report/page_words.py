"""The text of a page, without markup."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from components.report.page.document import render_section
from tests.report.samples import report_sample


def words(page: str) -> str:
    """The text of a page, its tags replaced by spaces, each space once."""
    body = re.sub(
        r"<style>.*?</style>|<script>.*?</script>|<svg.*?</svg>", "", page, flags=re.DOTALL
    )
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def say(section: str, **changes: Any) -> str:
    """The text of a section of the small page with `changes`."""
    return words(render_section(section, replace(report_sample.small(), **changes)))
