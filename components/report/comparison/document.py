"""The page of two runs: its sections, in the style and by the elements of the report's page."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from components.evaluation.metrics.metric_table import METRICS
from components.report import page
from components.report.comparison.differences import (
    list_differences,
    list_labels,
    list_parts,
    pair_data,
)
from components.report.comparison.facts import ComparisonFacts
from components.report.page import formatting
from components.report.page.document import FILTERS
from components.report.page.sections.metrics import judge
from components.report.page.whiskers import Whisker, draw_whiskers
from components.report.templates import load_templates

_TITLES = {
    "summary": "Summary",
    "metrics": "Metrics",
    "classes": "Classes",
    "images": "Images that changed",
    "data": "Data",
    "settings": "Configuration",
    "code": "Code and versions",
}
_DRAWN = 20
# Longer tables are opened on demand.
_OPEN = 20
_MOST = 100


def render(facts: ComparisonFacts) -> str:
    """Write the page; the same facts give the same text."""
    sections = [
        (key, title, _render_section(key, facts))
        for key, title in _TITLES.items()
        if facts.paired or key not in ("classes", "images")
    ]
    template = _templates().get_template("comparison.html.j2")
    return template.render(facts=facts, sections=sections)


def _render_section(key: str, facts: ComparisonFacts) -> Markup:
    described = _DESCRIBE[key](facts) if key in _DESCRIBE else {}
    return Markup(_templates().get_template(f"{key}.html.j2").render(facts=facts, **described))


@functools.cache
def _templates() -> Environment:
    folders = (Path(__file__).parent / "templates", Path(page.__path__[0]) / "templates")
    filters: dict[str, Callable[..., Any]] = {**FILTERS, "metric": _name_metric, "judge": judge}
    return load_templates(folders, formatting.escape, filters)


def _name_metric(metric: str) -> str:
    return METRICS[metric].title


def _describe_summary(facts: ComparisonFacts) -> dict[str, Any]:
    return {"parts": list_parts(facts.first, facts.second)}


def _describe_metrics(facts: ComparisonFacts) -> dict[str, Any]:
    """Draw the differences that fit on one axis, where right is better."""
    rows = [
        Whisker(_name_metric(pair.metric), pair.second - pair.first, pair.change)
        for pair in (facts.paired.metrics if facts.paired else ())
        if not METRICS[pair.metric].lower_is_better and math.isfinite(pair.second - pair.first)
    ]
    better = f"right of the dashed line {facts.second.name} is better"
    return {"drawing": _draw(facts, rows, f"Differences of metrics: {better}", table="above")}


def _describe_classes(facts: ComparisonFacts) -> dict[str, Any]:
    assert facts.paired
    recalls = facts.paired.recalls
    rows = [
        Whisker(part.value, part.accuracy - (part.baseline or 0.0), part.change)
        for part in recalls[:_DRAWN]
    ]
    which = f"{len(rows)} of {len(recalls):,} classes" if recalls[_DRAWN:] else "Classes"
    caption = f"{which} by the difference of their recall, the largest loss first"
    return {
        "drawing": _draw(facts, rows, caption, table="below"),
        "listed": recalls[:_MOST],
        "is_open": len(recalls) <= _OPEN,
    }


def _draw(facts: ComparisonFacts, rows: list[Whisker], caption: str, *, table: str) -> Any:
    if not rows:
        return None
    axis = f"{facts.second.name} − {facts.first.name}"
    return draw_whiskers(rows, axis=axis, zero=True, caption=caption, table=table)


def _describe_data(facts: ComparisonFacts) -> dict[str, Any]:
    labels = list_labels(facts.first, facts.second)
    return {
        "rows": pair_data(facts.first, facts.second),
        "labels": labels[:_MOST],
        "total": len(labels),
        "is_open": len(labels) <= _OPEN,
    }


def _describe_settings(facts: ComparisonFacts) -> dict[str, Any]:
    first, second = facts.first.configuration, facts.second.configuration
    return {"rows": list_differences(first, second), "total": len(first.keys() | second.keys())}


def _describe_code(facts: ComparisonFacts) -> dict[str, Any]:
    return {
        "code": list_differences(facts.first.code, facts.second.code),
        "versions": list_differences(facts.first.versions, facts.second.versions),
    }


_DESCRIBE: Mapping[str, Callable[[ComparisonFacts], dict[str, Any]]] = {
    "summary": _describe_summary,
    "metrics": _describe_metrics,
    "classes": _describe_classes,
    "data": _describe_data,
    "settings": _describe_settings,
    "code": _describe_code,
}
