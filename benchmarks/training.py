"""Measures training: against its bare step, and against naive input.

    uv run -m benchmarks.training --part step --data DIR
    uv run -m benchmarks.training --part naive --data DIR --images 6400 --epochs 10

step: images/s of the training loop, from pixels in memory and from JPEG shards, over those of its
step alone on one batch in memory. naive: the same training fed file by file in program order, and
fed by this pipeline. Seconds include tracing the graph and, in this pipeline's loop, evaluation,
logs and checkpoints; images/s are of the steps after the first epoch.

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
from components.contract.errors import ConfigurationError

_MODULE = "benchmarks.training"

# Contender → what each of its processes measured.
Results = dict[str, list[dict[str, Any]]]


def main() -> int:
    """Measure what the command line asks for; print a table per part."""
    parser = _parser()
    arguments = parser.parse_args()
    os.environ.update(QUIET)
    return options.run(parser, lambda: _measure_parts(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=5)
    parser.add_argument("--part", action="append", required=True, choices=("step", "naive"))
    parser.add_argument("--data", required=True, help="folder of images")
    parser.add_argument("--network", default="resnet9", help="as model.name")
    counts = {
        "--size": (32, "side of the images, pixels"),
        "--batch": (128, "images per batch"),
        "--images": (3200, "per epoch, at most"),
        "--epochs": (4, "of each training"),
    }
    for name, (default, what) in counts.items():
        parser.add_argument(name, type=options.at_least_one, default=default, help=what)
    return parser


def _measure_parts(arguments: argparse.Namespace) -> None:
    from benchmarks.training_run import BARE, DECODED, JPEG, NAIVE, NAIVE_AHEAD

    contenders = {
        "step": [BARE, DECODED, JPEG],
        "naive": [NAIVE, NAIVE_AHEAD, JPEG, DECODED],
    }
    tabulate = {"step": _tabulate_step, "naive": _tabulate_naive}
    results, tables = {}, []
    for part in arguments.part:
        results[part] = _take_turns(arguments, contenders[part])
        tables.append(tabulate[part](_title(arguments), results[part]))
        tables[-1].show()
    write_results(_MODULE, tables, results, arguments.json)


def _tabulate_step(title: str, results: Results) -> Figures:
    [bare, *_] = results.values()
    table = Figures(title, ("contender", "images/s", "of the bare step", "waiting"))
    for name, figures in results.items():
        # Round by round: from one to the next the machine may be faster or slower.
        ratios = [_middle(ours) / _middle(step) for ours, step in zip(figures, bare, strict=True)]
        of_step = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        table.add(name, _show(figures, "images_per_second"), of_step, _waiting(figures))
    return table


def _tabulate_naive(title: str, results: Results) -> Figures:
    naive, *_ = (Spread.of(_collect(figures, "images_per_second")) for figures in results.values())
    columns = ("input", "seconds", "images/s", "of the naive loop", "waiting")
    table = Figures(title, columns)
    for name, figures in results.items():
        rate = Spread.of(_collect(figures, "images_per_second"))
        seconds = _show(figures, "seconds", digits=1)
        of_naive = "" if rate == naive else ratio(rate, naive)
        table.add(name, seconds, _show(figures, "images_per_second"), of_naive, _waiting(figures))
    return table


def _take_turns(arguments: argparse.Namespace, contenders: list[str]) -> Results:
    """Measure contenders on the same images, in rounds."""
    from benchmarks.ladder.data import prepare

    images = arguments.images // arguments.batch * arguments.batch
    if not images:
        raise ConfigurationError(f"--images {arguments.images} does not fill a batch")
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        folder = os.path.join(work, "images")
        prepare(arguments.data, folder, size=arguments.size, images=images)
        shared = {key: getattr(arguments, key) for key in ("network", "batch", "epochs")}

        def measure_one(contender: str) -> dict[str, Any]:
            task = {"contender": contender, "folder": folder, **shared}
            figures: dict[str, Any] = measure(["-m", "benchmarks.training_run", json.dumps(task)])
            return figures

        return take_turns(
            contenders,
            arguments.repeats,
            measure_one,
            lambda figures: f"{_middle(figures):,.0f} images/s",
        )


def _collect(figures: list[dict[str, Any]], key: str) -> list[float]:
    """Return the numbers of all processes; one each, or one per epoch."""
    values_of_each = (figure.get(key, []) for figure in figures)
    return [value for one in values_of_each for value in (one if isinstance(one, list) else [one])]


def _middle(figures: dict[str, Any]) -> float:
    """Return the images per second of one process."""
    return float(statistics.median(figures["images_per_second"]))


def _show(figures: list[dict[str, Any]], key: str, *, digits: int = 0) -> str:
    return Spread.of(_collect(figures, key)).show(digits)


def _waiting(figures: list[dict[str, Any]]) -> str:
    values = _collect(figures, "wait_share")
    return f"{statistics.median(values):.1%}" if values else ""


def _title(arguments: argparse.Namespace) -> str:
    return (
        f"{arguments.network}, {arguments.epochs} epochs of {arguments.images:,} images, "
        f"{arguments.size} px, batches of {arguments.batch}"
    )


if __name__ == "__main__":
    sys.exit(main())
