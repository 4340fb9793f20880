"""Plot of values with their intervals, one a row: a dot on a line, a diamond for the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from components.evaluation.metrics.intervals import Interval
from components.report.page.drawing import (
    BACK,
    FIRST,
    SECOND,
    SOFT,
    WHOLE,
    Drawing,
    draw,
    name_rows,
    place_legend,
)

# A narrower axis would exaggerate tiny differences.
_NARROWEST = 0.04


@dataclass(frozen=True)
class IntervalRow:
    """A row of the plot; NaN is left out."""

    label: str
    value: float
    interval: Interval | None
    baseline: float = math.nan


def draw_intervals(
    rows: Sequence[IntervalRow], *, axis: str, zero: bool = False, **words: str
) -> Drawing:
    """Draw rows from the top down.

    Args:
        rows: values and intervals.
        axis: label of the axis.
        zero: draw a line at 0, for differences; other values are fractions, on an axis of 0 to 1.
        words: caption, name and table, as for `draw`.
    """
    compared = any(math.isfinite(row.baseline) for row in rows)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot(xlabel=axis)
        _paint_rows(axes, rows, compared)
        name_rows(axes, [row.label for row in rows])
        if zero:
            axes.axvline(0, color=SOFT, linewidth=1, linestyle="--")
            left, right = axes.get_xlim()
            lack = max(0.0, _NARROWEST - (right - left))
            axes.set_xlim(left - lack / 2, right + lack / 2)
        else:
            axes.set_xlim(*WHOLE)
        axes.locator_params(axis="x", nbins=5)
        if compared:
            place_legend(figure, axes)

    return draw(paint, height=0.75 + 0.25 * len(rows) + 0.25 * compared, **words)


def _paint_rows(axes: Axes, rows: Sequence[IntervalRow], compared: bool) -> None:
    spans = [(place, row.interval) for place, row in enumerate(rows)]
    whole = [(place, span) for place, span in spans if span and math.isfinite(span.low + span.high)]
    axes.hlines(
        [place for place, _ in whole],
        [span.low for _, span in whole],
        [span.high for _, span in whole],
        color=FIRST,
        linewidth=2,
    )
    places, values = range(len(rows)), [row.value for row in rows]
    axes.plot(values, places, "o", color=FIRST, label="this model")
    if compared:
        style: dict[str, Any] = {"markerfacecolor": BACK, "markersize": 5, "markeredgewidth": 1.3}
        baseline = [row.baseline for row in rows]
        axes.plot(baseline, places, "D", color=SECOND, label="model in use", zorder=1.9, **style)
