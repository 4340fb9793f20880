"""The page of two runs, made of sections of the report."""

import math
from collections.abc import Iterator
from typing import Any

from components.metrics.metric_table import METRICS
from components.report.comparison.comparison import ComparisonFacts, list_parts
from components.report.page.document import render_template
from components.report.page.drawing import ModelNames
from components.report.page.metrics import describe_comparison, describe_slices

# Differences that are listed of each part of the runs.
_MOST = 100


def render_comparison(facts: ComparisonFacts) -> str:
    """Write the page; the same facts give the same text."""
    sections = [
        (key, title, render_template(f"{template}.html.j2", facts=facts, **values))
        for key, title, template, values in _describe_sections(facts)
    ]
    return str(render_template("comparison.html.j2", facts=facts, sections=sections))


def _describe_sections(facts: ComparisonFacts) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield key, title, name of the template, and its values."""
    yield "summary", "Summary", "comparison_summary", {"whole": list(_pair_metrics(facts))}
    if facts.shared:
        comparison = facts.shared.comparison
        names = ModelNames(facts.second.name, facts.first.name)
        metrics = describe_comparison(comparison, names=names)
        yield "metrics", "Metrics", "comparison_metrics", metrics
        recalls = describe_slices(comparison, names=names, by_change=True)
        yield "classes", "Per-class recall", "slices", recalls
        yield "images", "Changed predictions", "comparison_images", {}
    parts = list_parts(facts.first, facts.second)
    yield "differences", "What differs", "comparison_differences", {"parts": parts, "most": _MOST}


def _pair_metrics(facts: ComparisonFacts) -> Iterator[tuple[str, float, float]]:
    """Yield the title of each metric, and its value for each run on all of its images.

    Of runs that evaluated the same images, the metrics have a section.
    """
    first, second = facts.whole
    classes = max(len(first.labels), len(second.labels))
    for name, metric in METRICS.items() if not facts.overlap.is_whole else ():
        values = first.scalars[name], second.scalars[name]
        if metric.top < classes and not all(map(math.isnan, values)):
            yield metric.title, *values
