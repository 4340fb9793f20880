"""Draws the input benchmark: `python -m benchmarks.ladder_plot results.json OUT.png`."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

_COLOURS = {
    "files": ("#f29900", "a file for each image"),
    "records": ("#bdc1c6", "TFRecord shards, TensorFlow's operations"),
    "ours": ("#1a73e8", "this pipeline, JPEG"),
    "raw": ("#12a4af", "this pipeline, pixels"),
    "limit": ("#5f6368", "limit of this machine"),
}


def main() -> None:
    """Draw the results of an earlier run."""
    source, target = sys.argv[1:]
    draw(json.loads(Path(source).read_text()), Path(target))


def draw(results: Mapping[str, Any], target: Path) -> None:
    """Draw a bar for each rung, from the first at the top, with the range of its repeats."""
    bars = [(r["name"], r["images_per_second"], r["kind"], r["change"]) for r in results["rungs"]]
    bars += [(name, values, "limit", "") for name, values in results["limits"].items()]
    figure, axis = pyplot.subplots(figsize=(11, 0.45 * len(bars) + 2.2), layout="constrained")
    for row, (_, values, kind, change) in enumerate(bars):
        middle = statistics.median(values)
        spread = [[middle - min(values)], [max(values) - middle]]
        axis.barh(row, middle, color=_COLOURS[kind][0], xerr=spread, ecolor="#202124", capsize=2)
        text = f"  {middle:,.0f}" + (f"   {change}" if change else "")
        axis.text(max(values) * 1.04, row, text, va="center", fontsize=8.5, color="#202124")
    axis.set_yticks(range(len(bars)), [name for name, *_ in bars])
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlim(right=axis.get_xlim()[1] * 12)
    axis.set_xlabel("images per second, logarithmic: median, and the range of the repeats")
    axis.spines[["top", "right"]].set_visible(False)
    kinds = {kind for _, _, kind, _ in bars}
    handles = [
        pyplot.Rectangle((0, 0), 1, 1, color=colour, label=text)
        for kind, (colour, text) in _COLOURS.items()
        if kind in kinds
    ]
    axis.legend(handles=handles, loc="upper right", frameon=False, fontsize=9)
    figure.suptitle(_title(results), x=0.01, ha="left", fontsize=12)
    figure.savefig(target, dpi=110, metadata={"Date": None} if target.suffix == ".svg" else {})


def _title(results: Mapping[str, Any]) -> str:
    store = results.get("store")
    where = (
        f"from a bucket, {store['latency_ms']:g} ms a request, {store['stream_mbps']:g} Mbit/s a "
        "download"
        if store
        else "from local files in memory"
    )
    return (
        f"The same {results['images']:,} images, {results['size']} x {results['size']} pixels, "
        f"{where}; {results['cores']} cores"
    )


if __name__ == "__main__":
    main()
