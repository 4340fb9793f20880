"""Measures training: how much of the bare step's speed is left, and what choices bring.

    uv run -m benchmarks.training --part step --data DIR
    uv run -m benchmarks.training --part naive --data DIR --images 6400 --epochs 10
    uv run -m benchmarks.training --part imbalance --repeats 5
    uv run -m benchmarks.training --part noise --repeats 5

step: images/s of the training loop, from pixels in memory and from JPEG shards, over those of its
step alone on a batch that stays in memory. naive: the time of the same training fed one file after
the other, in the order of the program, and fed by this pipeline; seconds are those of everything,
with the tracing of the graph and, in this pipeline's loop, evaluation, logs and checkpoints;
images/s those of the steps after the first epoch. imbalance, noise: whole runs on the digits, two
classes of which are rare, or a fifth of whose labels are wrong.

A repeat of imbalance and noise is a seed, from 0 on. Each figure comes from a process of its own;
contenders take turns, so that a slow minute of the machine meets all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measuring import options
from benchmarks.measuring.process import QUIET, measure
from benchmarks.measuring.progress import Progress, announce, say
from benchmarks.measuring.spread import NOISE, Spread
from components.contract.errors import ConfigurationError

_MODULE = "benchmarks.training"
_WIDTH = 110

# Of resnet9 at 32 pixels, images a second; seconds of a process before its first step, of a run of
# the pipeline on the digits.
_RATE, _START, _RUN = 1400, 15, 45

# Contender → what each of its processes has measured.
Results = dict[str, list[dict[str, Any]]]


def main() -> int:
    """Measure what the command line asks for; print a table per part."""
    parser = _parser()
    arguments = parser.parse_args()
    if not arguments.data and {"step", "naive"} & set(arguments.part):
        parser.error("step and naive measure your images: --data DIR says where they are")
    os.environ.update(QUIET)
    return options.run(parser, lambda: _measure_parts(arguments))


def _measure_parts(arguments: argparse.Namespace) -> None:
    results = {part: _PARTS[part](arguments) for part in arguments.part}
    options.write_json(results, arguments.json)


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=5)
    parser.add_argument("--part", action="append", required=True, choices=list(_PARTS))
    parser.add_argument("--data", help="folder of images, for step and naive")
    parser.add_argument("--network", default="resnet9", help="as model.name")
    counts = {
        "--size": (32, "side of the images, pixels"),
        "--batch": (128, "images per batch"),
        "--images": (3200, "of an epoch, at most"),
        "--epochs": (4, "of each training"),
    }
    for name, (default, what) in counts.items():
        parser.add_argument(name, type=options.at_least_one, default=default, help=what)
    options.add_work(parser)
    return parser


def _measure_step(arguments: argparse.Namespace) -> Results:
    from benchmarks.training_run import BARE, DECODED, JPEG, JPEG_READER

    results = _take_turns(arguments, [BARE, DECODED, JPEG, JPEG_READER])
    table = _table(arguments, "contender", "images/s", "range", "of the bare step", "waiting")
    bare = [_middle(one) for one in results[BARE]]
    for name, figures in results.items():
        rates = _collect(figures, "images_per_second")
        # Round by round: from one to the next the machine may be faster or slower.
        ratios = [_middle(ours) / step for ours, step in zip(figures, bare, strict=True)]
        table.add_row(
            name,
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f} to {max(rates):,.0f}",
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
            _share(_collect(figures, "wait_share")),
        )
    Console(width=_WIDTH).print(table)
    return results


def _measure_naive(arguments: argparse.Namespace) -> Results:
    from benchmarks.training_run import DECODED, JPEG, NAIVE, NAIVE_AHEAD

    results = _take_turns(arguments, [NAIVE, NAIVE_AHEAD, JPEG, DECODED])
    table = _table(arguments, "input", "seconds", "range", "less", "images/s", "waiting")
    slowest = Spread.of(_collect(results[NAIVE], "seconds"))
    for name, figures in results.items():
        seconds = _collect(figures, "seconds")
        middle = statistics.median(seconds)
        table.add_row(
            name,
            f"{middle:,.1f}",
            f"{min(seconds):,.1f} to {max(seconds):,.1f}",
            _less(Spread.of(seconds), slowest),
            f"{statistics.median(_collect(figures, 'images_per_second')):,.0f}",
            _share(_collect(figures, "wait_share")),
        )
    Console(width=_WIDTH).print(table)
    return results


def _take_turns(arguments: argparse.Namespace, contenders: list[str]) -> Results:
    """Measure contenders on the same images, in rounds."""
    from benchmarks.ladder.data import prepare

    images = arguments.images // arguments.batch * arguments.batch
    if not images:
        raise ConfigurationError(f"--images {arguments.images} does not fill a batch")
    runs = arguments.repeats * len(contenders)
    steps = images * arguments.epochs / _RATE * (arguments.size / 32) ** 2
    announce(runs * (_START + steps))
    if arguments.network != "resnet9":
        say(f"That is for resnet9; the first measurement says how long {arguments.network} takes.")
    results: Results = {}
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        folder = os.path.join(work, "images")
        prepare(arguments.data, folder, size=arguments.size, images=images)
        shared = {key: getattr(arguments, key) for key in ("network", "batch", "epochs")}
        progress = Progress(runs)
        for _ in range(arguments.repeats):
            for contender in contenders:
                task = {"contender": contender, "folder": folder, **shared}
                figures = measure(["-m", "benchmarks.training_run", json.dumps(task)])
                results.setdefault(contender, []).append(figures)
                progress.report(contender)
    return results


def _collect(figures: list[dict[str, Any]], key: str) -> list[float]:
    """Return the numbers of all processes; one each, or one an epoch."""
    found = (figure.get(key, []) for figure in figures)
    return [value for one in found for value in (one if isinstance(one, list) else [one])]


def _middle(figures: dict[str, Any]) -> float:
    """Return the images per second of one process."""
    return float(statistics.median(figures["images_per_second"]))


def _less(seconds: Spread, slowest: Spread) -> str:
    """Say by what fraction the time is shorter."""
    fraction = f"{1 - seconds.median / slowest.median:.0%}"
    return fraction if seconds == slowest or seconds.differs(slowest) else f"{fraction}, {NOISE}"


def _share(values: list[float]) -> str:
    return f"{statistics.median(values):.1%}" if values else ""


def _table(arguments: argparse.Namespace, *columns: str) -> Table:
    title = (
        f"{arguments.network}, {arguments.epochs} epochs of {arguments.images:,} images, "
        f"{arguments.size} px, batches of {arguments.batch}; median of {arguments.repeats} repeats"
    )
    return Table(*columns, title=title)


def _measure_study(arguments: argparse.Namespace, name: str) -> Results:
    from benchmarks.training_studies import STUDIES, run_study

    study = STUDIES[name]
    announce(arguments.repeats * len(study.arms) * _RUN)
    results = run_study(study, seeds=range(arguments.repeats), work=arguments.work)
    table = Table(study.metric, "mean", "range", "against none", title=study.title)
    scores = {arm: _collect(figures, study.metric) for arm, figures in results.items()}
    [reference, *_] = scores.values()
    for arm, values in scores.items():
        gains = [ours - theirs for ours, theirs in zip(values, reference, strict=True)]
        table.add_row(
            arm,
            f"{statistics.mean(values):.4f}",
            f"{min(values):.4f} to {max(values):.4f}",
            _gain(gains),
        )
    Console(width=_WIDTH).print(table)
    return results


def _gain(gains: list[float]) -> str:
    """Say what a choice brings with the same seeds, and whether with all of them."""
    said = f"{statistics.mean(gains):+.4f} ({min(gains):+.4f} to {max(gains):+.4f})"
    is_clear = len(gains) > 1 and (min(gains) > 0 or max(gains) < 0)
    return said if is_clear or not any(gains) else f"{said}, {NOISE}"


_PARTS: dict[str, Callable[[argparse.Namespace], Results]] = {
    "step": _measure_step,
    "naive": _measure_naive,
    "imbalance": lambda arguments: _measure_study(arguments, "imbalance"),
    "noise": lambda arguments: _measure_study(arguments, "noise"),
}


if __name__ == "__main__":
    sys.exit(main())
