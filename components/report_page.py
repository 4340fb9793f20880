"""The report as one HTML page that loads nothing, for light and dark, wide and narrow screens."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from components.predictions import Measures, Roc
from components.ui_artifacts import MOST_CLASSES

# Labels of at most so many characters fit above a column without being turned.
_SHORT_LABEL = 4

_INK, _ACCENT, _FAINT = "#010101", "#020202", "#030303"
# The colours that matplotlib draws in, and what follows the page's theme in their place.
_THEMED = {_INK: "currentColor", _ACCENT: "var(--accent)", _FAINT: "var(--line)"}

_STYLE = """
:root { color-scheme: light dark; --back: #fff; --ink: #1c2127; --soft: #5a6472; --line: #d5dae1;
  --accent: #1a63c4; --right: 66 133 244; --wrong: 240 120 50; --good: #14713b; --bad: #a8321a; }
@media (prefers-color-scheme: dark) { :root { --back: #14181d; --ink: #e7eaee; --soft: #a3adba;
  --line: #38414c; --accent: #7ab0ff; --right: 48 108 220; --wrong: 208 88 24; --good: #5fd08d;
  --bad: #ff9b80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 1.5rem 1rem 3rem; background: var(--back);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { margin: 0; font-size: 1.6rem; line-height: 1.2; }
h2 { margin: 2.5rem 0 .5rem; font-size: 1.2rem; }
p { margin: .5rem 0; max-width: 44rem; }
small, .soft { color: var(--soft); font-size: .875rem; }
.verdict { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem 0 .3rem 1.25rem; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: top; font-weight: normal; overflow-wrap: normal; }
thead th { color: var(--soft); font-size: .875rem; vertical-align: bottom; }
tr > :first-child { padding-left: 0; text-align: left; overflow-wrap: anywhere; min-width: 6rem; }
th small { display: block; max-width: 26rem; }
.matrix { font-size: .875rem; }
.matrix th, .matrix td { padding: .25rem .4rem; border: 1px solid var(--back); }
.matrix td { min-width: 2.2rem; text-align: center; background: rgb(var(--wrong) / var(--s, 0)); }
.matrix td.right { background: rgb(var(--right) / var(--s, 0)); font-weight: 600; }
.matrix td.none { color: var(--soft); }
.matrix thead th { text-align: center; }
.matrix tr > :first-child { position: sticky; left: 0; z-index: 1; background: var(--back);
  padding-left: 0; min-width: 2rem; max-width: 9rem; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; }
.turned thead bdi { display: inline-block; max-height: 8rem; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; writing-mode: vertical-rl;
  text-orientation: sideways; transform: rotate(180deg); }
.curve { max-width: 30rem; } .curve svg { width: 100%; height: auto; }
.curve text { font-family: inherit !important; }
@media (max-width: 30rem) { th, td { padding-left: .6rem; font-size: .9375rem; }
  thead th { font-size: .8125rem; } tr > :first-child { min-width: 4.5rem; } }
"""


@dataclass(frozen=True)
class Report:
    """What the page says."""

    split: str
    blessed: bool
    floor: float
    """Share of the most frequent class in the split, 0 to 1."""
    measures: Measures


def render(report: Report) -> str:
    """Write the page; the same report gives the same bytes."""
    title = f"Evaluation on the {escape(report.split)} split"
    measures = report.measures
    sections = (
        _head(report),
        _totals(report),
        _confusion(measures),
        _classes(measures),
        _curve(measures.roc),
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>'
        '\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        + "\n".join(sections)
        + "\n</main>\n</body>\n</html>\n"
    )


def _head(report: Report) -> str:
    kind, verdict = ("good", "Blessed") if report.blessed else ("bad", "Not blessed")
    meaning = "may replace the one in use" if report.blessed else "does not replace the one in use"
    images, classes = report.measures.confusion.sum(), len(report.measures.labels)
    return (
        f"<p>{images:,} images, {classes:,} classes.</p>\n"
        f'<p><span class="verdict {kind}">{verdict}:</span> this model {meaning}.</p>'
    )


def _totals(report: Report) -> str:
    """Compare the model with one that always answers with the most frequent class."""
    measures, share = report.measures, report.floor
    found = np.count_nonzero(measures.support)
    rows = (
        ("Accuracy", "Share of the images whose class is found.", measures.accuracy, share),
        (
            "Balanced accuracy",
            "Mean recall: each class counts as much as any other.",
            measures.balanced_accuracy,
            1 / found,
        ),
        (
            "Macro F1",
            "Mean of the classes' F1.",
            measures.macro_f1,
            2 * share / (1 + share) / found,
        ),
        ("Loss", "Cross-entropy, in nats; 0 is best.", measures.loss, math.nan),
    )
    body = [
        _row([f"{name}<small>{meaning}</small>", f"<strong>{value:.3f}</strong>", _number(other)])
        for name, meaning, value, other in rows
    ]
    head = ("", "This model", "Always the most frequent class")
    return "<h2>Overall</h2>\n" + _table(head, body, name="Overall measures")


def _classes(measures: Measures) -> str:
    columns = (measures.precision, measures.recall, measures.f1)
    body = [
        _row([_text(label), *(_number(column[i]) for column in columns), f"{support:,}"])
        for i, (label, support) in enumerate(zip(measures.labels, measures.support, strict=True))
    ]
    head = ("Class", "Precision", "Recall", "F1", "Images")
    return (
        "<h2>Classes</h2>\n<p>Precision: of the images given this class, the share that have it. "
        "Recall: of the images of this class, the share found. F1: their harmonic mean.</p>\n"
        + _table(head, body, name="Precision, recall and F1 of each class")
    )


def _confusion(measures: Measures) -> str:
    """Shade each cell by the root of its share of the row, so that rare mistakes show."""
    shown = measures.most_mistaken(MOST_CLASSES)
    labels = [measures.labels[column] for column in shown]
    support = measures.support.clip(1)
    body = [
        _row(
            [_text(measures.labels[row])],
            "".join(
                _cell(measures.confusion[row, column], support[row], right=row == column)
                for column in shown
            ),
        )
        for row in shown
    ]
    turned = " turned" if max(map(len, labels)) > _SHORT_LABEL else ""
    left_out = (
        f" Of {len(measures.labels):,} classes, these are the {MOST_CLASSES} that take part in "
        "most mistakes; the answers they share with others are left out."
        if len(measures.labels) > MOST_CLASSES
        else ""
    )
    return (
        "<h2>Confusion</h2>\n<p>Each row is a true class, each column what the model says: "
        f"blue is right, orange is wrong.{left_out}</p>\n"
        + _table(("", *map(_text, labels)), body, name="Confusion matrix", style=f"matrix{turned}")
    )


def _cell(count: int, support: int, *, right: bool) -> str:
    if not count:
        return '<td class="none">0</td>'
    shade = 0.12 + 0.45 * math.sqrt(count / support)
    return f'<td{" class=right" if right else ""} style="--s:{shade:.2f}">{count}</td>'


def _curve(roc: Roc | None) -> str:
    if not roc:
        return "<h2>ROC curve</h2>\n<p>None: the split has images of one class only.</p>"
    about = (
        "Micro-average: each class against all others, every answer counted."
        if roc.positive is None
        else f"The positive class is {_text(roc.positive)}."
    )
    picture = f"ROC curve; the area under it is {roc.area:.3f}."
    return (
        f"<h2>ROC curve</h2>\n<p>{about} The area under the curve is {roc.area:.3f}.</p>\n"
        f'<div class="curve" role="img" aria-label="{picture}">{_draw(roc)}</div>'
    )


def _draw(roc: Roc) -> str:
    """Draw an SVG element in the page's own font and colours."""
    settings = {"svg.hashsalt": "image report", "svg.fonttype": "none", "font.size": 9}
    colours = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _INK)
    with matplotlib.rc_context({**settings, **colours, "axes.edgecolor": _FAINT}):
        figure = Figure(figsize=(4.4, 3.6), layout="constrained")
        axes = figure.add_subplot(xlabel="False positive rate", ylabel="Recall", aspect="equal")
        axes.margins(0.02)
        axes.plot([0, 1], [0, 1], color=_FAINT, linestyle="--", linewidth=1)
        axes.plot(roc.false_positive_rate, roc.recall, color=_ACCENT, clip_on=False)
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        FigureCanvasSVG(figure).print_svg(buffer, metadata=nothing)
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    for colour, themed in _THEMED.items():
        drawing = drawing.replace(colour, themed)
    return drawing


def _table(head: Iterable[str], body: Iterable[str], *, name: str, style: str = "") -> str:
    """Wrap rows; a table wider than the screen scrolls, by keyboard too."""
    titles = "".join(f'<th scope="col">{title}</th>' if title else "<td></td>" for title in head)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{name}">\n'
        f'<table class="{style}">\n<thead><tr>{titles}</tr></thead>\n<tbody>\n'
        + "\n".join(body)
        + "\n</tbody>\n</table>\n</div>"
    )


def _row(cells: Iterable[str], more: str = "") -> str:
    first, *rest = cells
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{c}</td>" for c in rest)}{more}</tr>'


def _text(label: str) -> str:
    """Escape, and keep a right-to-left label from turning its surroundings."""
    return f'<bdi title="{escape(label)}">{escape(label)}</bdi>'


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"
