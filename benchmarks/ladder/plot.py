"""Draws the input benchmark: `python -m benchmarks.ladder.plot results.json OUT.png`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

from benchmarks.measuring import options
from benchmarks.measuring.bars import (
    LIMIT,
    OTHER,
    OURS,
    Bar,
    draw_bars,
    make_parser,
    read_figures,
    refusing,
    save,
)
from benchmarks.measuring.spread import Spread

_COLOURS = {
    "files": ("#f29900", "a file for each image"),
    "records": (OTHER, "TFRecord shards, TensorFlow's operations"),
    "ours": (OURS, "this pipeline, JPEG"),
    "raw": ("#12a4af", "this pipeline, pixels"),
    "limit": (LIMIT, "limit of this machine"),
}


def main() -> int:
    """Draw the results of an earlier run."""
    parser = _parser()
    arguments = parser.parse_args()

    def work() -> None:
        with refusing(arguments.figures):
            draw(read_figures(arguments.figures[0]), Path(arguments.picture))

    return options.run(parser, work)


def _parser() -> argparse.ArgumentParser:
    return make_parser("benchmarks.ladder.plot", __doc__, files=1)


def draw(results: Mapping[str, Any], target: Path) -> None:
    """Draw a bar for each rung, from the first at the top, with the range of its repeats."""
    bars = [
        Bar(
            rung["name"],
            Spread.of(rung["images_per_second"]),
            _colour(rung["kind"]),
            rung["change"],
        )
        for rung in results["rungs"]
    ]
    limits = results["limits"].items()
    bars += [Bar(name, Spread.of(values), _colour("limit")) for name, values in limits]
    figure, axis = pyplot.subplots(figsize=(11, 0.45 * len(bars) + 2.2), layout="constrained")
    draw_bars(axis, bars, logarithmic=True)
    kinds = {rung["kind"] for rung in results["rungs"]} | {"limit"}
    handles = [
        pyplot.Rectangle((0, 0), 1, 1, color=colour, label=text)
        for kind, (colour, text) in _COLOURS.items()
        if kind in kinds
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(_title(results), x=0.01, ha="left", fontsize=12)
    save(figure, target)


def _colour(kind: str) -> str:
    return _COLOURS[kind][0]


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
    sys.exit(main())
