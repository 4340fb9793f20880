"""The page: its sections and their templates.

Long lists are in `details`, links lead to sections, and the style sheet follows the theme, so the
page works without scripts, from a file, on paper, and in sandboxed frames.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from components.contract.printable import format_duration
from components.report.facts import ReportFacts
from components.report.page import formatting
from components.report.page.classes import describe_balance, describe_classes, describe_confusion
from components.report.page.formatting import load_templates
from components.report.page.images import describe_images, describe_map, describe_suspects
from components.report.page.metrics import describe_calibration, describe_metrics, describe_slices
from components.report.page.summary import describe_summary
from components.report.page.training import describe_training

# Name of the template → title, and the values that it needs besides the facts.
_SECTIONS: Mapping[str, tuple[str, Callable[[ReportFacts], dict[str, Any]]]] = {
    "summary": ("Summary", describe_summary),
    "metrics": ("Metrics", describe_metrics),
    "classes": ("Per-class metrics", describe_classes),
    "confusion": ("Confusion matrix", describe_confusion),
    "images": ("Predictions", describe_images),
    "mistakes": ("Worst mistakes", lambda facts: {}),
    "suspects": ("Suspects", describe_suspects),
    "map": ("Map", describe_map),
    "slices": ("Slices", lambda facts: describe_slices(facts.comparison)),
    "calibration": ("Calibration", describe_calibration),
    "training": ("Training", describe_training),
    "balance": ("Class balance", describe_balance),
    "samples": ("Training samples", lambda facts: {}),
    "files": ("Files and anomalies", lambda facts: {}),
    "run": ("Run", lambda facts: {}),
}

# Name in templates → function.
_FILTERS: dict[str, Callable[..., Any]] = {
    "base64": formatting.encode,
    "bdi": formatting.isolate,
    "clip": formatting.clip,
    "code": formatting.mark_code,
    "count": formatting.count,
    "duration": format_duration,
    "first_of": formatting.first_of,
    "html": formatting.escape,
    "integer": "{:,}".format,
    "number": formatting.number,
    "percent": formatting.percent,
    "scale": formatting.scale,
    "sentence": formatting.sentence,
    "setting": formatting.setting,
    "shorten": formatting.shorten,
    "signed": formatting.signed,
    "titled": formatting.titled,
}


def render(facts: ReportFacts) -> str:
    """Write the page; the same facts give the same text."""
    sections = [(key, title, render_section(key, facts)) for key, (title, _) in _SECTIONS.items()]
    return str(render_template("page.html.j2", facts=facts, sections=sections))


def render_section(key: str, facts: ReportFacts) -> Markup:
    """Write one section, without its title."""
    _, describe = _SECTIONS[key]
    return render_template(f"{key}.html.j2", facts=facts, **describe(facts))


def render_template(name: str, **values: Any) -> Markup:
    """Write a template with these values."""
    return Markup(_templates().get_template(name).render(**values))


@functools.cache
def _templates() -> Environment:
    return load_templates(Path(__file__).parent / "templates", formatting.escape, _FILTERS)
