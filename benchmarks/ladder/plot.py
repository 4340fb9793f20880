"""Draws the ladder: a bar of images per second for each rung, and what each rung brought.

Ladders of different places stand side by side, with the same rungs in the same rows. Pixels that
were decoded before are copied twenty times as fast as JPEG is decoded: their bars are cut, so that
the axis can be linear and begin at zero.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.measuring.results import NOISE, Spread, ratio

# Matplotlib warns about every missing mathematical font, which no text here needs.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

_INK, _SOFT = "#202124", "#80868b"
_COLORS = {
    "files": ("#f29900", "a file for each image"),
    "records": ("#bdc1c6", "TFRecord shards, TensorFlow's operations"),
    "ours": ("#1a73e8", "this pipeline, JPEG"),
    "raw": ("#12a4af", "this pipeline, pixels"),
    "limit": ("#5f6368", "limit of this machine"),
}

# A rung → the one that it changes, unless that is the one above.
_CHANGED = {"TFRecord, one shard": "files one by one"}

Row = tuple[str, str, str]
"""Name of a rung or limit, its kind, and what changed."""


def draw(ladders: Sequence[Mapping[str, Any]], target: Path) -> None:
    """Write the picture as SVG, a column for each ladder; the same results, the same file.

    The first ladder has all rungs; the others may lack some.
    """
    rows = [(of["name"], of["kind"], of["change"]) for of in ladders[0]["rungs"]]
    rows += [(name, "limit", "") for name in ladders[0]["limits"]]
    height = 0.52 * len(rows) + 2
    figure, axes = pyplot.subplots(
        ncols=len(ladders),
        figsize=(5 + 4.2 * len(ladders), height),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    end = max(map(_find_end, ladders))
    for axis, ladder in zip(axes[0], ladders, strict=True):
        _draw_column(axis, ladder, rows, end)
    labels = [f"{name}\n{change}" if change else name for name, _, change in rows]
    axes[0][0].set_yticks(range(len(rows)), labels, fontsize=8.5)
    axes[0][0].invert_yaxis()
    kinds = {kind for _, kind, _ in rows}
    handles = [
        pyplot.Rectangle((0, 0), 1, 1, color=color, label=text)
        for kind, (color, text) in _COLORS.items()
        if kind in kinds
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    with matplotlib.rc_context({"svg.hashsalt": "benchmarks"}):
        figure.savefig(target, dpi=110, metadata={"Date": None})
    pyplot.close(figure)


def _find_end(ladder: Mapping[str, Any]) -> float:
    """Return where the axis ends: beyond every rung that decodes images."""
    decoded = [rung for rung in ladder["rungs"] if rung["kind"] != "raw"] or ladder["rungs"]
    return 1.1 * float(max(max(rung["images_per_second"]) for rung in decoded))


def _draw_column(axis: Axes, ladder: Mapping[str, Any], rows: Sequence[Row], end: float) -> None:
    rates = {rung["name"]: Spread.of(rung["images_per_second"]) for rung in ladder["rungs"]}
    rates |= {name: Spread.of(values) for name, values in ladder["limits"].items()}
    before: Spread | None = None
    for place, (name, kind, _) in enumerate(rows):
        if name not in rates:
            axis.text(0, place, " not measured", va="center", fontsize=8.5, color=_SOFT)
            continue
        rate, gain = rates[name], ""
        before = rates.get(_CHANGED.get(name, ""), before)
        if before and kind != "limit":
            gain = ratio(rate, before).replace(f", {NOISE}", ", noise").replace(" x", "x", 1)
        before, cut = rate, rate.high > end
        spread = None if cut else [[rate.median - rate.low], [rate.high - rate.median]]
        length = min(rate.median, end)
        axis.barh(place, length, color=_COLORS[kind][0], xerr=spread, ecolor=_INK, capsize=2)
        text = f"  {'… ' if cut else ''}{rate.median:,.0f}   {gain}".rstrip()
        axis.text(end if cut else rate.high, place, text, va="center", fontsize=8.5, color=_INK)
    # Room for the numbers.
    axis.set_xlim(0, end * 1.55)
    axis.set_xticks([tick for tick in axis.get_xticks() if 0 <= tick <= end])
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(_title(ladder), loc="left", fontsize=10)
    axis.set_xlabel(
        "images per second, median and range; bars with … are cut;\n2x: times the rung above, "
        "TFRecord, one shard: times files one by one"
    )


def _title(results: Mapping[str, Any]) -> str:
    store = results.get("store")
    where = (
        f"From a bucket, {store['latency_ms']:g} ms per request, "
        f"{store['stream_mbps']:g} Mbit/s per download"
        if store
        else "From local files in memory"
    )
    return (
        f"{where}\n{results['images']:,} images of {results['size']} pixels, "
        f"{results['cores']} cores"
    )
