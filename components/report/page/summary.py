"""What a person wants to know first: the verdict, why, the main numbers, what to look at."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from components.report.facts import ReportFacts
from components.report.page.elements import bullets, count, number, paragraph, percent, signed, text
from components.report.page.metrics import judge

_LONG_WAIT = 0.1


def write_summary(facts: ReportFacts) -> str:
    """Write the verdict, the tiles and the warnings."""
    warnings = [f'<a href="#{anchor}">{words}</a>' for words, anchor in _find_warnings(facts)]
    parts = [_judge_model(facts), _make_tiles(facts), "<h3>To look at</h3>"]
    parts.append(bullets(warnings) if warnings else paragraph("Nothing stands out."))
    if facts.notes:
        parts += ["<h3>About this report</h3>", bullets(text(note) for note in facts.notes)]
    return "\n".join(parts)


def _judge_model(facts: ReportFacts) -> str:
    kind, mark, verdict, meaning = (
        ("good", "✓", "Blessed", "may replace the one in use")
        if facts.blessed
        else ("bad", "✗", "Not blessed", "does not replace the one in use")
    )
    return (
        f'<div class="verdict {kind}"><p>{mark} {verdict}: this model {meaning}.</p>'
        f"{bullets(map(text, facts.reasons)) if facts.reasons else ''}</div>"
    )


def _make_tiles(facts: ReportFacts) -> str:
    measures, files = facts.comparison.measures, facts.files
    rejected, total = files.get("rejected"), files.get("files")
    tiles = [
        _describe_accuracy(facts),
        _describe_change(facts),
        ("Macro F1", number(measures.scalars.get("macro_f1", math.nan)), "mean over the classes"),
        (
            "Images",
            f"{measures.confusion.sum():,}",
            f"{count(len(measures.labels), 'class', 'classes')}, {text(facts.split)} split",
        ),
    ]
    if rejected is not None:
        tiles.append(("Rejected", f"{rejected:,}", f"of {total:,} files" if total else ""))
    return '<dl class="tiles">\n' + "\n".join(_make_tile(*tile) for tile in tiles) + "\n</dl>"


def _make_tile(title: str, value: str, more: str) -> str:
    return (
        f'<div><dt>{title}</dt><dd class="value">{value}</dd><dd><small>{more}</small></dd></div>'
    )


def _describe_accuracy(facts: ReportFacts) -> tuple[str, str, str]:
    comparison = facts.comparison
    span = comparison.intervals.get("accuracy")
    interval = f"95 %: {number(span.low)} to {number(span.high)}<br>" if span else ""
    guess = f"most frequent class: {number(facts.floor)}"
    return "Accuracy", number(comparison.measures.scalars["accuracy"]), interval + guess


def _describe_change(facts: ReportFacts) -> tuple[str, str, str]:
    comparison = facts.comparison
    version = f" {text(facts.baseline_version)}" if facts.baseline_version else ""
    title = f"Against baseline{version}"
    if comparison.baseline is None:
        return "Against baseline", "–", "no model is in use yet"
    change = comparison.changes.get("accuracy")
    words, kind = judge(change)
    interval = f"<br>95 %: {signed(change.low)} to {signed(change.high)}" if change else ""
    value = comparison.measures.scalars["accuracy"] - comparison.baseline.scalars["accuracy"]
    return title, signed(value), f'accuracy: <span class="{kind}">{words}</span>{interval}'


def _find_warnings(facts: ReportFacts) -> Iterator[tuple[str, str]]:
    """Yield what stands out, as HTML, and the section that has more of it."""
    yield from _judge_metrics(facts)
    yield from _judge_data(facts.files)
    if found := sum(map(len, facts.anomalies.values())):
        yield f"{count(found, 'anomaly', 'anomalies')} found in the data", "files"
    waits = [share for share in facts.history.get("input_wait_share", ()) if math.isfinite(share)]
    if waits and (wait := float(np.median(waits))) > _LONG_WAIT:
        yield f"Training waited for input {percent(wait)} of its time", "training"


def _judge_metrics(facts: ReportFacts) -> Iterator[tuple[str, str]]:
    measures = facts.comparison.measures
    if judge(facts.comparison.changes.get("accuracy"))[1] == "bad":
        yield "Accuracy is below the baseline's, by more than chance", "metrics"
    if absent := np.count_nonzero(measures.support == 0):
        have = "has" if absent == 1 else "have"
        where = f"no image in the {text(facts.split)} split"
        yield f"{count(absent, 'class', 'classes')} {have} {where}", "classes"
    if unnamed := np.count_nonzero(measures.confusion.sum(axis=0) == 0):
        yield f"The model never answers with {_of(unnamed, len(measures.labels))}", "classes"


def _of(part: int, total: int) -> str:
    return f"{part:,} of {count(total, 'class', 'classes')}"


_FINDINGS: Sequence[tuple[str, str, str]] = (
    ("rejected", "file was rejected", "files were rejected"),
    ("label_conflicts", "image has several labels", "images have several labels"),
    ("in_several_splits", "image is in several splits", "images are in several splits"),
)


def _judge_data(files: Any) -> Iterator[tuple[str, str]]:
    for key, one, many in _FINDINGS:
        if found := files.get(key, 0):
            yield count(found, one, many), "files"
