"""How many images each class has in each split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

from components.report.facts import ReportFacts
from components.report.page.drawing import FIRST, SERIES, Drawing, draw, name_rows, place_legend
from components.report.page.formatting import shorten

Balance = Mapping[str, Mapping[str, int]]

# More bars make a figure of several screens.
_BARS = 60
_PANELS = 3
_TITLE = 12
_MOST = 100
_WIDE_RANGE = 20


def describe_balance(facts: ReportFacts) -> dict[str, Any]:
    """Describe the splits, draw a figure, and list the rarest classes."""
    balance = facts.balance
    labels = _sort_labels(balance)
    few = len(labels) <= _BARS
    return {
        "total": len(labels),
        "splits": [_describe_split(split, counts, labels) for split, counts in balance.items()],
        "drawings": _draw_bars(balance, labels) if few else [_draw_curves(balance)],
        "rarest": labels[::-1][:_MOST],
    }


def _sort_labels(balance: Balance) -> list[str]:
    """Order the classes from the most frequent over all splits to the rarest."""
    labels = sorted({label for counts in balance.values() for label in counts})
    return sorted(labels, key=lambda label: -sum(c.get(label, 0) for c in balance.values()))


def _describe_split(split: str, counts: Mapping[str, int], labels: Sequence[str]) -> dict[str, Any]:
    sizes = [counts[label] for label in labels if counts.get(label)]
    least, most = min(sizes, default=0), max(sizes, default=0)
    return {
        "name": split,
        "images": sum(sizes),
        "sizes": f"{least:,} to {most:,}" if least < most else f"{most:,}",
        "absent": len(labels) - len(sizes),
    }


def _draw_bars(balance: Balance, labels: Sequence[str]) -> list[Drawing]:
    splits = list(balance) if labels else []
    return [
        _draw_panels(balance, splits[start : start + _PANELS], labels)
        for start in range(0, len(splits), _PANELS)
    ]


def _draw_panels(balance: Balance, splits: Sequence[str], labels: Sequence[str]) -> Drawing:
    def paint(figure: Figure) -> None:
        panels = figure.subplots(1, len(splits), sharey=True, squeeze=False)[0]
        for panel, split in zip(panels, splits, strict=True):
            counts = [balance[split].get(label, 0) for label in labels]
            panel.barh(range(len(labels)), counts, color=FIRST, height=0.7)
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            panel.set_title(shorten(split, _TITLE))
            panel.xaxis.set_major_locator(MaxNLocator(2, integer=True, min_n_ticks=1))
            name_rows(panel, labels)

    caption = f"Images of each class in {', '.join(splits)}"
    return draw(paint, caption=caption, height=0.6 + 0.2 * len(labels))


def _draw_curves(balance: Balance) -> Drawing:
    sizes = {split: np.sort(list(counts.values()))[::-1] for split, counts in balance.items()}
    positive = np.concatenate([size[size > 0] for size in sizes.values()])
    wide = bool(len(positive)) and positive.max() > _WIDE_RANGE * positive.min()

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot(xlabel="classes, the most frequent first", ylabel="images")
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
        place_legend(figure, axes)

    scale = ", on a logarithmic scale" if wide else ""
    caption = f"Images of each class{scale}, sorted in each split by itself"
    return draw(paint, caption=caption, height=3)
