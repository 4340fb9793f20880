"""Draws what the ingest benchmark has measured: `python -m benchmarks.plot OUT.svg FILE.json …`."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

_OURS, _LIMIT, _OTHER = "#1a73e8", "#5f6368", "#bdc1c6"
_TITLES = {
    "header": "bytes kept, header checked",
    "tiny": "bytes kept, header checked, 32 pixels",
    "pixels": "bytes kept, every pixel checked",
    "shrink": "shrunk to 256 pixels, JPEG quality 95",
    "transform": "Transform to canonical 224 x 224",
    "remote": "from a bucket, 30 ms a request, 20 KB images",
}


def main() -> None:
    """Draw a panel of bars per mode: the median of each contender, its range as a line."""
    target, *files = sys.argv[1:]
    modes = {mode: found for file in files for mode, found in json.loads(_read(file)).items()}
    rows = [len(found) for found in modes.values()]
    figure, _ = pyplot.subplots(
        len(modes), 1, figsize=(8, 1.2 * len(modes) + 0.3 * sum(rows)), height_ratios=rows
    )
    for axis, (mode, found) in zip(figure.axes, modes.items(), strict=True):
        _draw(axis, mode, found)
    figure.tight_layout()
    # The same figures give the same file.
    figure.savefig(target, metadata={"Date": None})


def _read(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")


def _draw(axis: pyplot.Axes, mode: str, found: dict[str, list[dict[str, float]]]) -> None:
    """Draw the contenders of a mode, the fastest on top."""
    rates = {name: [f["images_per_second"] for f in runs] for name, runs in found.items()}
    names = sorted(rates, key=lambda name: statistics.median(rates[name]))
    medians = [statistics.median(rates[name]) for name in names]
    colours = [
        _OURS if name == "ours" else _LIMIT if name.startswith("limit") else _OTHER
        for name in names
    ]
    below = [middle - min(rates[name]) for name, middle in zip(names, medians, strict=True)]
    above = [max(rates[name]) - middle for name, middle in zip(names, medians, strict=True)]
    labels = ["this component" if name == "ours" else name for name in names]
    bars = axis.barh(labels, medians, color=colours, xerr=[below, above], ecolor="#202124")
    axis.bar_label(bars, [f"{middle:,.0f}" for middle in medians], padding=6)
    axis.margins(x=0.15)
    axis.set_title(_TITLES[mode], loc="left", fontsize=11)
    axis.set_xlabel("images per second")
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
