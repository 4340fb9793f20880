"""How many images each class has in each split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

from components.report.facts import ReportFacts
from components.report.page.drawing import FIRST, SERIES, draw, name_rows, place_legend
from components.report.page.elements import (
    clip,
    count,
    details,
    figure,
    figures,
    first_of,
    paragraph,
    plain,
    shorten,
    table,
    text,
)

Balance = Mapping[str, Mapping[str, int]]

# More bars make a figure of several screens.
_BARS = 60
_PANELS = 3
_TITLE = 12
_MOST = 100
_WIDE_RANGE = 20


def write_balance(facts: ReportFacts) -> str:
    """Write what stands out, a figure, and a table of the rarest classes."""
    balance = facts.balance
    labels = _sort_labels(balance)
    if not labels:
        return paragraph("How many images each class has is not known.")
    listed = labels[::-1][:_MOST]
    shown = first_of(len(listed), len(labels), "class", many="classes", order="the rarest first")
    return "\n".join(
        (
            *(_describe(split, balance[split], labels) for split in balance),
            figures(
                _draw_bars(balance, labels) if len(labels) <= _BARS else [_draw_curves(balance)]
            ),
            details(shown, _tabulate(balance, listed)),
        )
    )


def _sort_labels(balance: Balance) -> list[str]:
    """Order the classes from the most frequent over all splits to the rarest."""
    labels = sorted({label for counts in balance.values() for label in counts})
    return sorted(labels, key=lambda label: -sum(c.get(label, 0) for c in balance.values()))


def _describe(split: str, counts: Mapping[str, int], labels: Sequence[str]) -> str:
    found = [counts[label] for label in labels if counts.get(label)]
    if not found:
        return paragraph(f"{text(split)}: no image.")
    absent = len(labels) - len(found)
    missing = f" {count(absent, 'class', 'classes')} without any." if absent else ""
    least, most = min(found), max(found)
    range_ = f"{least:,} to {most:,}" if least < most else f"{most:,}"
    return paragraph(
        f"<strong>{text(split)}</strong>: {count(sum(found), 'image')}, {range_} a class.{missing}"
    )


def _draw_bars(balance: Balance, labels: Sequence[str]) -> list[str]:
    splits = list(balance)
    return [
        _draw_panels(balance, splits[start : start + _PANELS], labels)
        for start in range(0, len(splits), _PANELS)
    ]


def _draw_panels(balance: Balance, splits: Sequence[str], labels: Sequence[str]) -> str:
    def paint(drawn: Figure) -> None:
        panels = drawn.subplots(1, len(splits), sharey=True, squeeze=False)[0]
        for panel, split in zip(panels, splits, strict=True):
            counts = [balance[split].get(label, 0) for label in labels]
            panel.barh(range(len(labels)), counts, color=FIRST, height=0.7)
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            panel.set_title(shorten(split, _TITLE))
            panel.xaxis.set_major_locator(MaxNLocator(2, integer=True, min_n_ticks=1))
            name_rows(panel, labels)

    about = f"Images of each class in {', '.join(splits)}"
    name = f"{about}; the numbers are in the table below"
    return figure(draw(paint, name=name, height=0.6 + 0.2 * len(labels)), f"{plain(about)}.")


def _draw_curves(balance: Balance) -> str:
    sizes = {split: np.sort(list(counts.values()))[::-1] for split, counts in balance.items()}
    positive = np.concatenate([size[size > 0] for size in sizes.values()])
    wide = bool(len(positive)) and positive.max() > _WIDE_RANGE * positive.min()

    def paint(drawn: Figure) -> None:
        axes = drawn.add_subplot(xlabel="classes, the most frequent first", ylabel="images")
        for place, (split, size) in enumerate(sizes.items()):
            colour, _, line = SERIES[place % len(SERIES)]
            axes.plot(np.arange(1, len(size) + 1), size, color=colour, linestyle=line, label=split)
        if wide:
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        place_legend(drawn, axes)

    scale = ", on a logarithmic scale" if wide else ""
    about = f"Images of each class{scale}, sorted in each split by itself"
    return figure(draw(paint, name=about, height=3), f"{about}.")


def _tabulate(balance: Balance, labels: Sequence[str]) -> str:
    rows = ([clip(label), *(f"{c.get(label, 0):,}" for c in balance.values())] for label in labels)
    return table(["Class", *map(text, balance)], rows, name="Images of each class in each split")
