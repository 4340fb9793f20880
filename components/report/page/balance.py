"""Class balance: images of each class in each split."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from components.report.facts import ReportFacts, SpanFacts
from components.report.page.drawing import BACK, SERIES, Drawing, draw, name_rows, place_legend

Balance = Mapping[str, Mapping[str, int]]

# More classes would need a figure of several screens.
_BARS = 30
# Fraction of a row that its bars fill; heights, inches, of a bar and of everything else.
_FILLED, _BAR, _AROUND = 0.8, 0.12, 1.0
_MOST = 100
# Dates of ten characters still fit beside each other.
_TICKS = 5
# Statistic of the pixels → its name; the medians of all lie between 0 and about 1.
_PIXELS = {"brightness_high": "brightness", "contrast": "contrast", "sharpness": "sharpness"}


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
        "drawing": _draw_bars(balance, labels) if labels else None,
        "rarest": labels[::-1][:_MOST],
        "drift": _draw_drift(facts.spans) if len(facts.spans) > 1 else [],
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


def _draw_drift(spans: Sequence[SpanFacts]) -> list[Drawing]:
    """Draw how the images change from span to span: fractions of classes, and their pixels."""
    known = {label for span in spans for label in span.fractions}
    fractions = {
        label: [span.fractions.get(label, 0.0) for span in spans] for label in sorted(known)
    }
    moved = sorted(fractions, key=lambda label: -float(np.ptp(fractions[label])))[: len(SERIES)]
    classes = {label: (fractions[label], None) for label in moved}
    pixels = {
        name: ([span.pixels[key][1] for span in spans], [span.pixels[key] for span in spans])
        for key, name in _PIXELS.items()
        if all(key in span.pixels for span in spans)
    }
    names = [span.name for span in spans]
    which = "the classes that change most" if len(known) > len(moved) else "the classes"
    drawings = [
        _draw_over_spans(names, classes, f"Fractions of {which} by span", "fraction of the images")
    ]
    if pixels:
        caption = "Pixels of the images by span: median, and the middle half of the images"
        drawings.append(_draw_over_spans(names, pixels, caption, "median"))
    return drawings


def _draw_over_spans(
    names: Sequence[str], series: Mapping[str, tuple[Any, Any]], caption: str, unit: str
) -> Drawing:
    """Draw series of values, some with their quartiles, over the spans."""

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot(xlabel="span", ylabel=unit)
        places = np.arange(len(names))
        for (color, marker, line), (name, (values, quartiles)) in zip(
            SERIES, series.items(), strict=False
        ):
            axes.plot(places, values, color=color, marker=marker, linestyle=line, label=name)
            if quartiles:
                low, _, high = zip(*quartiles, strict=True)
                axes.fill_between(places, low, high, color=color, alpha=0.15, linewidth=0)
        shown = places[:: max(1, -(-len(names) // _TICKS))]
        axes.set_xticks(shown, [names[place] for place in shown])
        axes.set_ylim(bottom=0)
        place_legend(figure, axes)

    ends = ", ".join(f"{name} {of[0]:.2f} to {of[-1]:.2f}" for name, (of, _) in series.items())
    return draw(
        paint, caption=caption, name=f"{caption}; from the first to the last: {ends}", height=2.8
    )
