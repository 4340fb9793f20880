"""Class balance: images of each class in each split."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from components.report.facts import ReportFacts
from components.report.page.drawing import BACK, SERIES, Drawing, draw, name_rows, place_legend

Balance = Mapping[str, Mapping[str, int]]

# More classes would need a figure of several screens.
_BARS = 30
# Fraction of a row that its bars fill; heights, inches, of a bar and of everything else.
_FILLED, _BAR, _AROUND = 0.8, 0.12, 1.0
_MOST = 100


def describe_balance(facts: ReportFacts) -> dict[str, Any]:
    """Describe the splits, draw a figure, and list the rarest classes."""
    balance = facts.balance
    # The most frequent first.
    labels = sorted(
        facts.classes, key=lambda label: -sum(counts.get(label, 0) for counts in balance.values())
    )
    return {
        "total": len(labels),
        "splits": [_describe_split(split, counts, labels) for split, counts in balance.items()],
        "drawing": _draw_bars(balance, labels),
        "rarest": labels[::-1][:_MOST],
    }


def _describe_split(split: str, counts: Mapping[str, int], labels: Sequence[str]) -> dict[str, Any]:
    sizes = [counts[label] for label in labels if counts.get(label)]
    least, most = min(sizes, default=0), max(sizes, default=0)
    return {
        "name": split,
        "images": sum(sizes),
        "sizes": f"{least:,} to {most:,}" if least < most else f"{most:,}",
        "absent": len(labels) - len(sizes),
    }


def _draw_bars(balance: Balance, labels: Sequence[str]) -> Drawing:
    """Draw a bar for each split and class; of many classes only for those at both ends."""
    order = "the most frequent class first"
    if len(labels) > _BARS:
        half = _BARS // 2
        order = f"the {half} most frequent and the {half} rarest of {len(labels):,} classes"
        labels = [*labels[:half], *labels[-half:]]
    height = _FILLED / max(1, len(balance))

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot(xlabel="images")
        for place, (split, counts) in enumerate(balance.items()):
            sizes = [counts.get(label, 0) for label in labels]
            rows = np.arange(len(labels)) - _FILLED / 2 + (place + 0.5) * height
            color, _, _ = SERIES[place % len(SERIES)]
            # Neighbors differ by more than color: every other one is not filled.
            style: dict[str, Any] = {"facecolor": BACK if place % 2 else color, "edgecolor": color}
            axes.barh(rows, sizes, height=0.85 * height, label=split, **style)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
        name_rows(axes, labels)
        place_legend(figure, axes)

    caption = f"Images per class in {', '.join(balance)}, {order}"
    rows = len(labels) * max(2, len(balance))
    return draw(paint, caption=caption, height=_AROUND + _BAR / _FILLED * rows)
