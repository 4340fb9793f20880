"""Which classes are taken for which: the matrix, and the pairs with most mistakes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from components.evaluation.classification_metrics import ConfusedPair, ModelMetrics
from components.evaluation.predictions import Ints
from components.report.facts import ReportFacts
from components.report.page.elements import (
    clip,
    first_of,
    paragraph,
    percent,
    plain,
    scrolled,
    table,
    text,
)

# More make a matrix that nobody looks at.
_MOST = 50
# Labels of at most so many characters fit above a column without being turned.
_SHORT_LABEL = 4
# Of more classes, zeros would hide the other numbers.
_ZEROS = 20


def write_confusion(facts: ReportFacts) -> str:
    """Write the pairs and the matrix."""
    measures = facts.comparison.measures
    return "\n".join(
        (
            "<h3>Most confused pairs</h3>",
            _list_pairs(facts.comparison.confused, measures),
            "<h3>Confusion matrix</h3>",
            _draw_matrix(measures),
        )
    )


def _list_pairs(pairs: Sequence[ConfusedPair], measures: ModelMetrics) -> str:
    if not pairs:
        return paragraph("No class is taken for another.")
    off_diagonal = np.count_nonzero(measures.confusion)
    total = int(off_diagonal - np.count_nonzero(np.diag(measures.confusion)))
    head = ("True class", "Taken for", "Images", "Share of the class")
    rows = (
        [clip(pair.label), clip(pair.predicted), f"{pair.examples:,}", percent(pair.share)]
        for pair in pairs
    )
    return paragraph(f"{first_of(len(pairs), total, 'pair')}.") + table(
        head, rows, name="Most confused pairs of classes", style="pair"
    )


def _draw_matrix(measures: ModelMetrics) -> str:
    """Shade each cell by the root of its share of the row, so that rare mistakes show."""
    shown = measures.most_mistaken(_MOST)
    labels = [measures.labels[column] for column in shown]
    turned = " turned" if max(map(len, labels)) > _SHORT_LABEL else ""
    left_out = (
        f" Of {len(measures.labels):,} classes, these are the {_MOST} that take part in "
        "most mistakes; the answers they share with others are left out."
        if len(measures.labels) > _MOST
        else ""
    )
    blank = " Empty cells are 0." if len(shown) > _ZEROS else ""
    about = (
        "Each row is a true class, each column what the model says: blue, on the diagonal, is "
        "right, orange is wrong, and the stronger, the larger its share of the row."
        f"{blank}{left_out}"
    )
    return paragraph(about) + scrolled(
        ("", *map(_title, labels)),
        [_make_row(measures, row, shown) for row in shown],
        name="Confusion matrix",
        style=f"matrix{turned}",
    )


def _title(label: str) -> str:
    """Give a label that may be cut off in full where it is pointed at."""
    return text(label).replace("<bdi>", f'<bdi title="{plain(label)}">', 1)


def _make_row(measures: ModelMetrics, row: int, shown: Ints) -> str:
    support, zero = max(1, int(measures.support[row])), len(shown) <= _ZEROS
    cells = "".join(
        _make_cell(int(measures.confusion[row, column]), support, right=row == column, zero=zero)
        for column in shown
    )
    return f'<tr><th scope="row">{_title(measures.labels[row])}</th>{cells}</tr>'


def _make_cell(examples: int, support: int, *, right: bool, zero: bool) -> str:
    if not examples:
        return '<td class="none">0</td>' if zero else "<td></td>"
    shade = 0.12 + 0.45 * math.sqrt(examples / support)
    return f'<td{" class=right" if right else ""} style="--s:{shade:.2f}">{examples:,}</td>'
