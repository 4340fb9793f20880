"""Bars of rates with the range of their repeats, as all pictures of the benchmarks have them."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.measuring.spread import Spread
from components.contract.errors import DataError

OURS, LIMIT, OTHER = "#1a73e8", "#5f6368", "#bdc1c6"
_INK = "#202124"


@dataclass(frozen=True)
class Bar:
    """A bar, and what is written beside it."""

    name: str
    rate: Spread
    colour: str
    note: str = ""


def draw_bars(axis: Axes, bars: Sequence[Bar], *, logarithmic: bool = False) -> None:
    """Draw images per second, the first bar on top, each with a line for the range.

    Bars begin at zero; a logarithmic axis has none, and says where they begin.
    """
    for row, bar in enumerate(bars):
        rate = bar.rate
        spread = [[rate.median - rate.low], [rate.high - rate.median]]
        axis.barh(row, rate.median, color=bar.colour, xerr=spread, ecolor=_INK, capsize=2)
        text = f"  {rate.median:,.0f}" + (f"   {bar.note}" if bar.note else "")
        axis.text(rate.high, row, text, va="center", fontsize=8.5, color=_INK)
    axis.set_yticks(range(len(bars)), [bar.name for bar in bars])
    axis.invert_yaxis()
    axis.set_xlabel("images per second: median, and the range of the repeats")
    if logarithmic:
        _begin_below(axis, min(bar.rate.low for bar in bars))
    else:
        axis.set_xlim(0, 1.15 * max(bar.rate.high for bar in bars))
    axis.spines[["top", "right"]].set_visible(False)


def _begin_below(axis: Axes, least: float) -> None:
    """Take a logarithmic axis that begins at a power of ten, and say so."""
    begin = 10 ** math.floor(math.log10(least * 0.9))
    axis.set_xscale("log")
    axis.set_xlim(begin, axis.get_xlim()[1] * 12)
    axis.set_xlabel(f"{axis.get_xlabel()}; logarithmic, bars begin at {begin:g} and not at zero")


def make_parser(
    module: str, description: str | None, *, files: str | int
) -> argparse.ArgumentParser:
    """Return the parser of a program that draws what a benchmark has written in `files` files."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("figures", nargs=files, metavar="FILE.json", help="of --json")
    parser.add_argument("picture", metavar="PICTURE", help="to write, .svg or .png")
    return parser


def read_figures(file: str) -> Any:
    """Read what `--json` has written.

    Raises:
        DataError: there is no such file, or it is none of ours.
    """
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} is not a file that --json has written: {error}") from error


@contextmanager
def refusing(files: Sequence[str]) -> Iterator[None]:
    """Say in a sentence that figures are those of another benchmark.

    Raises:
        DataError: what is drawn in this context is not in them.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{', '.join(files)}: not the figures that are drawn here.") from error


def save(figure: Figure, target: Path) -> None:
    """Write a picture; the same figures give the same file."""
    metadata = {"Date": None} if target.suffix == ".svg" else {}
    with matplotlib.rc_context({"svg.hashsalt": "benchmarks"}):
        figure.savefig(target, dpi=110, metadata=metadata)
