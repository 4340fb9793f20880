"""The page of two runs, in the style of the report's page and with its elements."""

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from components.metrics.metric_table import METRICS
from components.report import page
from components.report.comparison.comparison import (
    ComparisonFacts,
    list_differences,
    list_labels,
    list_parts,
    pair_data,
)
from components.report.page import formatting
from components.report.page.document import FILTERS
from components.report.page.drawing import Drawing, IntervalRow, draw_intervals
from components.report.page.sections.metrics import judge
from components.report.templates import load_templates

_DRAWN = 20
# Longer tables are collapsed.
_OPEN, _MOST = 20, 100


def _describe_metrics(facts: ComparisonFacts) -> dict[str, Any]:
    """Draw the differences of metrics from 0 to 1, where higher is better."""
    rows = [
        IntervalRow(METRICS[pair.metric].title, pair.second - pair.first, pair.change)
        for pair in (facts.paired.metrics if facts.paired else ())
        if not METRICS[pair.metric].lower_is_better and math.isfinite(pair.second - pair.first)
    ]
    better = f"{facts.second.name} is better to the right of the dashed line"
    return {"drawing": _draw(facts, rows, f"Differences of metrics: {better}", table="above")}


def _describe_classes(facts: ComparisonFacts) -> dict[str, Any]:
    assert facts.paired
    recalls = facts.paired.recalls
    rows = [
        IntervalRow(part.value, part.accuracy - (part.baseline or 0.0), part.change)
        for part in recalls[:_DRAWN]
    ]
    which = f" of {len(rows)} of {len(recalls):,} classes" if recalls[_DRAWN:] else ""
    caption = f"Differences of recall{which}, the largest loss first"
    return {
        "drawing": _draw(facts, rows, caption, table="below"),
        "listed": recalls[:_MOST],
        "is_open": len(recalls) <= _OPEN,
    }


def _draw(
    facts: ComparisonFacts, rows: list[IntervalRow], caption: str, *, table: str
) -> Drawing | None:
    if not rows:
        return None
    axis = f"{facts.second.name} − {facts.first.name}"
    return draw_intervals(rows, axis=axis, zero=True, caption=caption, table=table)


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


# Name of the template → title, and the values that it needs besides the facts.
_SECTIONS: Mapping[str, tuple[str, Callable[[ComparisonFacts], dict[str, Any]]]] = {
    "summary": ("Summary", lambda facts: {"parts": list_parts(facts.first, facts.second)}),
    "metrics": ("Metrics", _describe_metrics),
    "classes": ("Per-class recall", _describe_classes),
    "images": ("Changed predictions", lambda facts: {}),
    "data": ("Data", _describe_data),
    "settings": ("Configuration", _describe_settings),
    "code": ("Code and versions", _describe_code),
}


def render(facts: ComparisonFacts) -> str:
    """Write the page; the same facts give the same text."""
    sections = []
    for key, (title, describe) in _SECTIONS.items():
        if facts.paired or key not in ("classes", "images"):
            template = _templates().get_template(f"{key}.html.j2")
            content = Markup(template.render(facts=facts, **describe(facts)))
            sections.append((key, title, content))
    page_template = _templates().get_template("comparison.html.j2")
    return page_template.render(facts=facts, sections=sections)


@functools.cache
def _templates() -> Environment:
    folders = (Path(__file__).parent / "templates", Path(page.__path__[0]) / "templates")
    filters: dict[str, Callable[..., Any]] = {
        **FILTERS,
        "judge": judge,
        "metric": lambda name: METRICS[name].title,
    }
    return load_templates(folders, formatting.escape, filters)
