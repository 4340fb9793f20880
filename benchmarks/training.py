"""Measures the same training fed file by file in program order, and fed by this pipeline.

    uv run -m benchmarks.training --data DIR --images 6400 --epochs 10

Seconds include tracing the graph and, in this pipeline's loop, evaluation, logs and checkpoints;
images/s are of the steps after the first epoch.

Each figure comes from a fresh process; contenders take turns, so that a slow minute of the machine
affects all of them.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from typing import Any

from benchmarks.measuring import options
from benchmarks.measuring.process import QUIET, measure, take_turns
from benchmarks.measuring.results import Figures, Spread, ratio, write_results

_MODULE = "benchmarks.training"

# Contender → what each of its processes measured.
Results = dict[str, list[dict[str, Any]]]


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=5)
    parser.add_argument("--data", required=True, help="folder of images")
    parser.add_argument("--network", default="resnet9", help="as model.name")
    options.add_counts(
        parser,
        size=(32, "side of the images, pixels"),
        batch=(128, "images per batch"),
        images=(3200, "per epoch, at most"),
        epochs=(4, "of each training"),
    )
    return parser


def _compare(arguments: argparse.Namespace) -> None:
    os.environ.update(QUIET)
    results = _take_turns(arguments)
    table = _tabulate(_title(arguments), results)
    table.show()
    write_results(_MODULE, [table], results, arguments.json)


def _tabulate(title: str, results: Results) -> Figures:
    columns = ("input", "seconds", "images/s", "of the naive loop", "waiting")
    table = Figures(title, columns)
    rates = {name: Spread.of(_collect(of, "images_per_second")) for name, of in results.items()}
    naive = next(iter(rates))
    for name, figures in results.items():
        seconds = Spread.of([figure["seconds"] for figure in figures]).show(1)
        of_naive = "" if name == naive else ratio(rates[name], rates[naive])
        waiting = f"{statistics.median(_collect(figures, 'wait_share')):.1%}"
        table.add(name, seconds, rates[name].show(), of_naive, waiting)
    return table


def _take_turns(arguments: argparse.Namespace) -> Results:
    """Measure the contenders on the same images, in rounds."""
    from benchmarks.ladder.data import prepare
    from benchmarks.training_run import CONTENDERS

    images = options.fill_batches(arguments)
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        folder = os.path.join(work, "images")
        prepare(arguments.data, folder, size=arguments.size, images=images)
        shared = {key: getattr(arguments, key) for key in ("network", "batch", "epochs")}

        def measure_one(contender: str) -> dict[str, Any]:
            task = {"contender": contender, "folder": folder, **shared}
            figures: dict[str, Any] = measure(["-m", "benchmarks.training_run", json.dumps(task)])
            return figures

        return take_turns(
            CONTENDERS,
            arguments.repeats,
            measure_one,
            lambda figures: f"{statistics.median(figures['images_per_second']):,.0f} images/s",
        )


def _collect(figures: list[dict[str, Any]], key: str) -> list[float]:
    """Return the numbers of all epochs of all processes."""
    return [value for figure in figures for value in figure[key]]


def _title(arguments: argparse.Namespace) -> str:
    return (
        f"{arguments.network}, {arguments.epochs} epochs of {arguments.images:,} images, "
        f"{arguments.size} px, batches of {arguments.batch}"
    )


if __name__ == "__main__":
    sys.exit(options.run(_parser(), _compare))
