"""Draws the ladder: a bar of images per second for each rung, with the range of its repeats."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.measuring.results import Spread

# Matplotlib warns about every missing mathematical font, which no text here needs.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

_INK = "#202124"
_COLORS = {
    "files": ("#f29900", "a file for each image"),
    "records": ("#bdc1c6", "TFRecord shards, TensorFlow's operations"),
    "ours": ("#1a73e8", "this pipeline, JPEG"),
    "raw": ("#12a4af", "this pipeline, pixels"),
    "limit": ("#5f6368", "limit of this machine"),
}


def draw(results: Mapping[str, Any], target: Path) -> None:
    """Write the picture as SVG or PNG; the same results give the same file."""
    rows = [
        (of["name"], of["images_per_second"], of["kind"], of["change"]) for of in results["rungs"]
    ]
    rows += [(name, values, "limit", "") for name, values in results["limits"].items()]
    figure, axis = pyplot.subplots(figsize=(11, 0.45 * len(rows) + 2.2), layout="constrained")
    for place, (_, values, kind, change) in enumerate(rows):
        rate = Spread.of(values)
        spread = [[rate.median - rate.low], [rate.high - rate.median]]
        axis.barh(place, rate.median, color=_COLORS[kind][0], xerr=spread, ecolor=_INK, capsize=2)
        text = f"  {rate.median:,.0f}   {change}".rstrip()
        axis.text(rate.high, place, text, va="center", fontsize=8.5, color=_INK)
    axis.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axis.invert_yaxis()
    axis.spines[["top", "right"]].set_visible(False)
    _scale(axis, min(min(values) for _, values, *_ in rows))
    kinds = {kind for *_, kind, _ in rows}
    handles = [
        pyplot.Rectangle((0, 0), 1, 1, color=color, label=text)
        for kind, (color, text) in _COLORS.items()
        if kind in kinds
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(_title(results), x=0.01, ha="left", fontsize=12)
    metadata = {"Date": None} if target.suffix == ".svg" else {}
    with matplotlib.rc_context({"svg.hashsalt": "benchmarks"}):
        figure.savefig(target, dpi=110, metadata=metadata)
    pyplot.close(figure)


def _scale(axis: Axes, least: float) -> None:
    """Use a logarithmic axis; it has no zero, so its label says where the bars begin."""
    begin = 10 ** math.floor(math.log10(least * 0.9))
    axis.set_xscale("log")
    axis.set_xlim(begin, axis.get_xlim()[1] * 12)
    axis.set_xlabel(
        "images per second, median and range of the repeats; logarithmic, bars begin at "
        f"{begin:g} and not at zero"
    )


def _title(results: Mapping[str, Any]) -> str:
    store = results.get("store")
    where = (
        f"from a bucket, {store['latency_ms']:g} ms per request, "
        f"{store['stream_mbps']:g} Mbit/s per download"
        if store
        else "from local files in memory"
    )
    return (
        f"The same {results['images']:,} images, {results['size']} x {results['size']} pixels, "
        f"{where}; {results['cores']} cores"
    )
