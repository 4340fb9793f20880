"""How training went, epoch by epoch, and how long it waited for input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from components.report.facts import ReportFacts
from components.report.page.drawing import SERIES, draw, place_legend
from components.report.page.elements import (
    count,
    details,
    figure,
    figures,
    first_of,
    number,
    paragraph,
    percent,
    plain,
    table,
)

History = Mapping[str, Sequence[float]]

_NAMES = {
    "loss": "Loss",
    "accuracy": "Accuracy",
    "images_per_second": "Images a second",
    "input_wait_share": "Share of time waiting for input",
}
_ON_EVAL = "val_"
_LAST = 200


def write_training(facts: ReportFacts) -> str:
    """Write curves of every metric, the eval split's beside the train split's, and a table."""
    history = {name: values for name, values in facts.history.items() if len(values)}
    if not history:
        return paragraph("The history of the training is not known.")
    epochs = max(map(len, history.values()))
    metrics = dict.fromkeys(name.removeprefix(_ON_EVAL) for name in history)
    order = "the last ones" if epochs > _LAST else ""
    listing = first_of(min(_LAST, epochs), epochs, "epoch", order=order)
    return "\n".join(
        (
            paragraph(_describe(history, epochs)),
            figures(_draw(history, metric) for metric in metrics),
            details(listing, _tabulate(history, epochs)),
        )
    )


def _describe(history: History, epochs: int) -> str:
    words = [f"{count(epochs, 'epoch')}."]
    losses = np.array(history.get("val_loss", ()), np.float64)
    if np.isfinite(losses).any():
        best = int(np.nanargmin(losses))
        words.append(f"The loss on eval was lowest in epoch {best + 1}: {number(losses[best])}.")
    waits = [share for share in history.get("input_wait_share", ()) if math.isfinite(share)]
    if waits:
        median, most = percent(float(np.median(waits))), percent(max(waits))
        words.append(
            f"Training waited for input {median} of its time in a median epoch, at most {most}."
        )
    return " ".join(words)


def _find_series(history: History, metric: str) -> dict[str, Sequence[float]]:
    return {
        split: history[name]
        for split, name in (("train", metric), ("eval", _ON_EVAL + metric))
        if name in history
    }


def _draw(history: History, metric: str) -> str:
    series = _find_series(history, metric)
    title = _NAMES.get(metric, metric)
    last = {split: _write(metric, values[-1]) for split, values in series.items()}
    alone = len(series) == 1
    ends = ", ".join(value if alone else f"{split} {value}" for split, value in last.items())
    about = f"{title} in the last epoch: {ends}"

    def paint(drawn: Figure) -> None:
        axes = drawn.add_subplot(xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        longest = 1
        for (colour, marker, line), (split, values) in zip(SERIES, series.items(), strict=False):
            places = np.arange(1, len(values) + 1)
            every = max(1, len(values) // 20)
            style: dict[str, Any] = {"marker": marker, "linestyle": line, "markevery": every}
            axes.plot(places, values, color=colour, label=split, **style)
            longest = max(longest, len(values))
        axes.set_xlim(0.5, longest + 0.5)
        _scale(axes, metric, series.values())
        if len(series) > 1:
            place_legend(drawn, axes)

    name = f"{title} by epoch; {ends} in the last; the numbers are in the table below"
    return figure(draw(paint, name=name, height=2.5), f"{plain(about)}.")


def _scale(axes: Axes, metric: str, series: Iterable[Sequence[float]]) -> None:
    """Begin at 0 where the values are shares or rates; loss and accuracy fill the figure."""
    known = [value for values in series for value in values if math.isfinite(value)]
    if metric not in ("loss", "accuracy") and known and min(known) >= 0:
        axes.set_ylim(0, 1.08 * max(known) or 1)
    if metric == "input_wait_share":
        decimals = 0 if known and max(known) > 0.05 else 1
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=decimals, symbol=" %"))


def _write(metric: str, value: float) -> str:
    if metric == "input_wait_share":
        return percent(value)
    if metric == "images_per_second":
        return f"{value:,.0f}" if math.isfinite(value) else "–"
    return number(value)


def _tabulate(history: History, epochs: int) -> str:
    head, columns = ["Epoch"], []
    for metric in dict.fromkeys(name.removeprefix(_ON_EVAL) for name in history):
        for split, values in _find_series(history, metric).items():
            title = _NAMES.get(metric, metric)
            head.append(
                f"{plain(title)}, {split}"
                if len(_find_series(history, metric)) > 1
                else plain(title)
            )
            # A metric that was added to a resumed training has fewer values.
            blank = [math.nan] * (epochs - len(values))
            columns.append([_write(metric, value) for value in (*blank, *values)])
    rows = [[str(epoch + 1), *row] for epoch, row in enumerate(zip(*columns, strict=True))]
    return table(head, rows[-_LAST:], name="History of the training")
