"""Draws what the ingest benchmark has measured: `python -m benchmarks.plot FILE.json … OUT.svg`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
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

_TITLES = {
    "header": "bytes kept, header checked",
    "tiny": "bytes kept, header checked, 32 pixels",
    "pixels": "bytes kept, every pixel checked",
    "shrink": "shrunk to 256 pixels, JPEG quality 95",
    "transform": "Transform to canonical 224 x 224",
    "remote": "from a bucket, 30 ms a request, 20 KB images",
}


def main() -> int:
    """Draw a panel of bars per mode."""
    parser = _parser()
    arguments = parser.parse_args()

    def work() -> None:
        with refusing(arguments.figures):
            _draw(arguments.figures, Path(arguments.picture))

    return options.run(parser, work)


def _parser() -> argparse.ArgumentParser:
    return make_parser("benchmarks.plot", __doc__, files="+")


def _draw(files: list[str], target: Path) -> None:
    modes: dict[str, Any] = {}
    for file in files:
        modes |= read_figures(file)
    rows = [len(found) for found in modes.values()]
    figure, axes = pyplot.subplots(
        len(modes),
        1,
        figsize=(8, 1.2 * len(modes) + 0.3 * sum(rows)),
        height_ratios=rows,
        squeeze=False,
        layout="constrained",
    )
    for axis, (mode, found) in zip(axes[:, 0], modes.items(), strict=True):
        draw_bars(axis, _list_bars(found))
        axis.set_title(_TITLES.get(mode, mode), loc="left", fontsize=11)
    save(figure, target)


def _list_bars(found: dict[str, list[dict[str, float]]]) -> list[Bar]:
    """Return a bar for each contender, the fastest first."""
    rates = {
        name: Spread.of([figure["images_per_second"] for figure in runs])
        for name, runs in found.items()
    }
    names = sorted(rates, key=lambda name: -rates[name].median)
    return [
        Bar("this component" if name == "ours" else name, rates[name], _colour(name))
        for name in names
    ]


def _colour(name: str) -> str:
    return OURS if name == "ours" else LIMIT if name.startswith("limit") else OTHER


if __name__ == "__main__":
    sys.exit(main())
