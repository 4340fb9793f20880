"""Training curves, and a table of the epochs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from components.contract.example import EVAL, TRAIN
from components.contract.model_files import INPUT_WAIT_FRACTION, LEARNING_RATE, PHASE, RATE
from components.report.facts import KeptEpoch, ReportFacts
from components.report.page.drawing import SERIES, SOFT, WHOLE, Drawing, draw, place_legend
from components.report.page.formatting import number, percent

History = Mapping[str, Sequence[float]]

_NAMES = {
    "loss": "Loss",
    "accuracy": "Accuracy",
    "balanced_accuracy": "Balanced accuracy",
    LEARNING_RATE: "Learning rate",
    RATE: "Images per second",
    INPUT_WAIT_FRACTION: "Fraction of time spent waiting for input",
}
_ON_EVAL = "val_"
_LAST = 200


def describe_training(facts: ReportFacts) -> dict[str, Any]:
    """Draw the metrics that both train and eval have, and list all in each epoch."""
    history = {name: values for name, values in facts.history.items() if len(values)}
    epochs = max(map(len, history.values()))
    kept = facts.kept_epoch
    series = _find_series(history)
    phases = history.get(PHASE, ())
    columns = {"Phase": [f"{phase:.0f}" for phase in phases]} if len(set(phases)) > 1 else {}
    columns |= _list_columns(series)
    return {
        "epochs": epochs,
        "best": kept and (kept.epoch, _NAMES[kept.metric].lower(), kept.value),
        "drawings": [
            _draw(name, values, kept) for name, values in series.items() if EVAL in values
        ],
        "search": facts.search and _describe_search(facts.search),
        "titles": list(columns),
        "rows": list(enumerate(zip(*columns.values(), strict=True), start=1))[-_LAST:],
    }


def _find_series(history: History) -> dict[str, dict[str, Sequence[float]]]:
    """Return metric → split → values."""
    return {
        metric: {
            split: history[name]
            for split, name in ((TRAIN, metric), (EVAL, _ON_EVAL + metric))
            if name in history
        }
        for metric in dict.fromkeys(name.removeprefix(_ON_EVAL) for name in history)
        if metric != PHASE
    }


def _draw(metric: str, series: Mapping[str, Sequence[float]], kept: KeptEpoch | None) -> Drawing:
    def paint(figure: Figure) -> None:
        axes = figure.add_subplot(xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        for (color, marker, line), (split, values) in zip(SERIES, series.items(), strict=False):
            every = max(1, len(values) // 20)
            style: dict[str, Any] = {"marker": marker, "linestyle": line, "markevery": every}
            axes.plot(np.arange(1, len(values) + 1), values, color=color, label=split, **style)
        if kept:
            style = {"color": SOFT, "linestyle": "-.", "linewidth": 1.2, "zorder": 1}
            axes.axvline(kept.epoch, label=f"kept: epoch {kept.epoch}", **style)
        axes.set_xlim(0.5, max(map(len, series.values())) + 0.5)
        if metric != "loss":
            axes.set_ylim(*WHOLE)
        place_legend(figure, axes)

    title = _NAMES.get(metric, metric)
    ends = ", ".join(f"{split} {_write(metric, values[-1])}" for split, values in series.items())
    return draw(
        paint,
        caption=f"{title} in the last epoch: {ends}",
        name=f"{title} by epoch; {ends} in the last; the numbers are in the table below",
        height=2.5,
    )


def _describe_search(search: Mapping[str, Any]) -> dict[str, Any]:
    """List the trials of a search, the most accurate first."""
    trials = sorted(search["trials"], key=lambda trial: (-trial["score"], trial["number"]))
    options = sorted({option for trial in trials for option in trial["values"]})
    rows = [
        (
            f"{trial['number']}{' (chosen)' if trial['number'] == search['chosen'] else ''}",
            f"{trial['score']:.3f}",
            f"{trial['epochs']}",
            f"{trial['seconds'] / 60:.1f}",
            ", ".join(filter(None, (trial["state"], trial.get("role")))),
            *(f"{trial['values'].get(option, '')}" for option in options),
        )
        for trial in trials
    ]
    return {
        "text": search["text"],
        "titles": [_NAMES[search["measure"]], "Epochs", "Minutes", "State", *options],
        "rows": [(row[0], row[1:]) for row in rows],
    }


def _write(metric: str, value: float) -> str:
    if metric == INPUT_WAIT_FRACTION:
        return percent(value)
    if metric == RATE:
        return f"{value:,.0f}" if math.isfinite(value) else "–"
    return f"{value:.3g}" if metric == LEARNING_RATE else number(value)


def _list_columns(series: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, list[str]]:
    """Return title → cell of each epoch."""
    columns = {}
    for metric, of_splits in series.items():
        for split, values in of_splits.items():
            title = _NAMES.get(metric, metric) + (f", {split}" if len(of_splits) > 1 else "")
            columns[title] = [_write(metric, value) for value in values]
    return columns
