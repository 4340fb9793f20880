"""The page: its sections and their templates.

Long lists are in `details`, links lead to sections, and the style sheet follows the theme, so the
page works without scripts, from a file, on paper, and in sandboxed frames.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from components.contract.printable import format_duration
from components.report.facts import ReportFacts
from components.report.page import formatting
from components.report.page.sections.balance import describe_balance
from components.report.page.sections.classes import (
    describe_classes,
    describe_confusion,
    describe_images,
)
from components.report.page.sections.curves import describe_calibration, describe_curves
from components.report.page.sections.metrics import describe_metrics, describe_slices
from components.report.page.sections.summary import describe_summary
from components.report.page.sections.training import describe_training
from components.report.templates import load_templates

_TITLES = {
    "summary": "Summary",
    "metrics": "Metrics",
    "classes": "Per-class metrics",
    "confusion": "Confusion matrix",
    "images": "Predictions",
    "mistakes": "Worst mistakes",
    "slices": "Slices",
    "calibration": "Calibration",
    "curves": "ROC and precision-recall",
    "training": "Training",
    "balance": "Class balance",
    "samples": "Training samples",
    "files": "Files and anomalies",
    "run": "Run",
}

# Values that templates need besides the facts.
_DESCRIBE: Mapping[str, Callable[[ReportFacts], dict[str, Any]]] = {
    "summary": describe_summary,
    "metrics": describe_metrics,
    "classes": describe_classes,
    "confusion": describe_confusion,
    "images": describe_images,
    "slices": describe_slices,
    "calibration": describe_calibration,
    "curves": describe_curves,
    "training": describe_training,
    "balance": describe_balance,
}

FILTERS: dict[str, Callable[..., Any]] = {
    "base64": formatting.encode,
    "bdi": formatting.isolate,
    "clip": formatting.clip,
    "count": formatting.count,
    "duration": format_duration,
    "first_of": formatting.first_of,
    "html": formatting.escape,
    "integer": formatting.integer,
    "number": formatting.number,
    "percent": formatting.percent,
    "scale": formatting.scale,
    "sentence": formatting.sentence,
    "setting": formatting.setting,
    "shorten": formatting.shorten,
    "signed": formatting.signed,
    "titled": formatting.titled,
}
"""Name in templates → function."""


def render(facts: ReportFacts) -> str:
    """Write the page; the same facts give the same text."""
    sections = [(key, title, render_section(key, facts)) for key, title in _TITLES.items()]
    return _templates().get_template("page.html.j2").render(facts=facts, sections=sections)


def render_section(key: str, facts: ReportFacts) -> Markup:
    """Write one section, without its title."""
    described = _DESCRIBE[key](facts) if key in _DESCRIBE else {}
    template = _templates().get_template(f"{key}.html.j2")
    return Markup(template.render(facts=facts, **described))


@functools.cache
def _templates() -> Environment:
    return load_templates(Path(__file__).parent / "templates", formatting.escape, FILTERS)
