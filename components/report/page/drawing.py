"""Matplotlib figures as SVG elements in the page's font and colors.

Unlike scripts, SVG works in sandboxed frames, loads nothing, is reproducible, and takes 10 to 60 KB
a figure; the runtimes of Plotly or Vega take megabytes.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from components.contract.confidence import Interval
from components.report.page.formatting import shorten

WIDTH = 4.4
"""Inches, 317 points, so text stays readable on a phone of 390 px."""

WHOLE = (-0.03, 1.03)
"""Limits of an axis of fractions: 0 to 1, with room for markers at the ends. An axis fitted to the
data would exaggerate tiny differences."""

INK, SOFT, LINE, BACK = "#010101", "#020202", "#030303", "#040404"
FIRST, SECOND = "#050505", "#060606"
SERIES = ((FIRST, "o", "-"), (SECOND, "D", "--"))
"""Color, marker and line of each series, so that series do not differ by color alone."""

# Placeholder colors, and the variables of the page's theme that replace them.
_THEMED = {INK: "ink", SOFT: "soft", LINE: "line", BACK: "back", FIRST: "first", SECOND: "second"}
_SETTINGS = {
    "svg.fonttype": "none",
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 1.5,
    "legend.handletextpad": 0.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}
_LONGEST = 18


@dataclass(frozen=True)
class Drawing:
    """A figure of the page."""

    svg: Markup
    name: str
    """Accessible name: describes the figure; unique on a page."""
    caption: str


def draw(
    paint: Callable[[Figure], None], *, caption: str, height: float, name: str = ""
) -> Drawing:
    """Draw a figure; the same calls give the same bytes.

    Args:
        paint: draws on an empty figure.
        caption: shown with the figure, followed by a period.
        height: inches.
        name: accessible name; by default the caption and the place of the table.
    """
    name = name or f"{caption}; the numbers are in the table below"
    # The salt makes identifiers unique among the drawings of a page.
    with (
        matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": ascii(name)}),
        warnings.catch_warnings(),
    ):
        # The browser has the glyphs that Matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        paint(figure)
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(buffer, metadata=nothing)
    return Drawing(Markup(_theme(buffer.getvalue())), name, f"{caption}.")


def _theme(drawing: str) -> str:
    """Keep the SVG element without group names, and leave colors to the style sheet."""
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'<g id="[^"]*"', "<g", drawing)
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    for color, variable in _THEMED.items():
        drawing = drawing.replace(color, f"var(--{variable})")
    return re.sub(r"\n\s*", "\n", drawing)


def place_legend(figure: Figure, axes: Axes) -> None:
    """Put the legend of `axes` above the figure."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=3, borderpad=0)


class ModelNames(NamedTuple):
    """What the compared models are called."""

    this: str = "this model"
    other: str = "the current model"


REPORT_NAMES = ModelNames()
"""Names in the report of a run."""


@dataclass(frozen=True)
class IntervalRow:
    """A row of the plot; NaN is left out."""

    label: str
    value: float
    interval: Interval | None
    baseline: float = math.nan


def draw_intervals(
    rows: Sequence[IntervalRow], *, axis: str, names: ModelNames = REPORT_NAMES, caption: str
) -> Drawing:
    """Draw rows of fractions from the top down."""
    compared = any(math.isfinite(row.baseline) for row in rows)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot(xlabel=axis)
        _paint_rows(axes, rows, names if compared else None)
        axes.set_yticks(range(len(rows)), [shorten(row.label, _LONGEST) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(*WHOLE)
        axes.locator_params(axis="x", nbins=5)
        if compared:
            place_legend(figure, axes)

    return draw(paint, height=0.75 + 0.25 * len(rows) + 0.25 * compared, caption=caption)


def _paint_rows(axes: Axes, rows: Sequence[IntervalRow], names: ModelNames | None) -> None:
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
    axes.plot(values, places, "o", color=FIRST, label=names and names.this)
    if names:
        style: dict[str, Any] = {"markerfacecolor": BACK, "markersize": 5, "markeredgewidth": 1.3}
        baseline = [row.baseline for row in rows]
        label = names.other.removeprefix("the ")
        axes.plot(baseline, places, "D", color=SECOND, label=label, zorder=1.9, **style)
