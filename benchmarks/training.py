"""Measures training: how much of the bare step's speed is left, and what choices bring.

    uv run -m benchmarks.training --part step --data DIR
    uv run -m benchmarks.training --part naive --data DIR --images 6400 --epochs 10
    uv run -m benchmarks.training --part imbalance --seeds 5
    uv run -m benchmarks.training --part noise --seeds 5

step: images/s of the training loop, from pixels in memory and from JPEG shards, over those of its
step alone on a batch that stays in memory. naive: the time of the same training fed one file after
the other, in the order of the program, and fed by this pipeline; seconds are those of everything,
with the tracing of the graph and, in this pipeline's loop, evaluation, logs and checkpoints;
images/s those of the steps after the first epoch. imbalance, noise: whole runs on the digits, two
classes of which are rare, or a fifth of whose labels are wrong.

Each figure comes from a process of its own; contenders take turns, so that a slow minute of the
machine meets all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from components.contract.errors import UserError

_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
_WIDTH = 110

# Contender → what each of its processes has measured.
Results = dict[str, list[dict[str, Any]]]


def main() -> int:
    """Measure what the command line asks for; print a table per part."""
    parser = _parser()
    arguments = parser.parse_args()
    if not arguments.data and {"step", "naive"} & set(arguments.part):
        parser.error("step and naive measure your images: --data DIR says where they are")
    os.environ.update(_QUIET)
    results: dict[str, Results] = {}
    try:
        for part in arguments.part:
            results[part] = _PARTS[part](arguments)
    except UserError as error:
        print(f"benchmarks.training: error: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--part", action="append", required=True, choices=list(_PARTS))
    parser.add_argument("--data", help="folder of images, for step and naive")
    parser.add_argument("--network", default="resnet9", help="as model.name")
    parser.add_argument("--size", type=int, default=32, help="side of the images, pixels")
    parser.add_argument("--batch", type=int, default=128, help="images per step")
    parser.add_argument("--images", type=int, default=3200, help="of an epoch")
    parser.add_argument("--epochs", type=int, default=4, help="of each training")
    parser.add_argument("--rounds", type=int, default=3, help="processes per contender")
    parser.add_argument("--seeds", type=int, default=5, help="of imbalance and noise, from 0 on")
    parser.add_argument("--json", metavar="FILE", help="write every figure there")
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    parser.add_argument("--work", default=memory, help="folder for images and runs")
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
    slowest = statistics.median(_collect(results[NAIVE], "seconds"))
    for name, figures in results.items():
        seconds = _collect(figures, "seconds")
        middle = statistics.median(seconds)
        table.add_row(
            name,
            f"{middle:,.1f}",
            f"{min(seconds):,.1f} to {max(seconds):,.1f}",
            f"{1 - middle / slowest:.0%}",
            f"{statistics.median(_collect(figures, 'images_per_second')):,.0f}",
            _share(_collect(figures, "wait_share")),
        )
    Console(width=_WIDTH).print(table)
    return results


def _take_turns(arguments: argparse.Namespace, contenders: list[str]) -> Results:
    """Measure contenders on the same images, in rounds."""
    from benchmarks.ladder_data import prepare

    results: Results = {}
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        folder = os.path.join(work, "images")
        images = arguments.images // arguments.batch * arguments.batch
        prepare(arguments.data, folder, size=arguments.size, images=images)
        options = {key: getattr(arguments, key) for key in ("network", "batch", "epochs")}
        for number in range(arguments.rounds):
            for contender in contenders:
                print(f"round {number + 1}: {contender}", file=sys.stderr, flush=True)
                task = {"contender": contender, "folder": folder, **options}
                results.setdefault(contender, []).append(_run(task))
    return results


def _run(task: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.training_run", json.dumps(task)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _collect(figures: list[dict[str, Any]], key: str) -> list[float]:
    """Return the numbers of all processes; one each, or one an epoch."""
    found = (figure.get(key, []) for figure in figures)
    return [value for one in found for value in (one if isinstance(one, list) else [one])]


def _middle(figures: dict[str, Any]) -> float:
    """Return the images per second of one process."""
    return float(statistics.median(figures["images_per_second"]))


def _share(values: list[float]) -> str:
    return f"{statistics.median(values):.1%}" if values else ""


def _table(arguments: argparse.Namespace, *columns: str) -> Table:
    title = (
        f"{arguments.network}, {arguments.epochs} epochs of {arguments.images:,} images, "
        f"{arguments.size} px, batches of {arguments.batch}; median of {arguments.rounds} rounds"
    )
    return Table(*columns, title=title)


def _measure_study(arguments: argparse.Namespace, name: str) -> Results:
    from benchmarks.training_studies import STUDIES, run_study

    study = STUDIES[name]
    results = run_study(study, seeds=range(arguments.seeds), work=arguments.work)
    table = Table(study.metric, "mean", "range", "against none", title=study.title)
    scores = {arm: _collect(figures, study.metric) for arm, figures in results.items()}
    [reference, *_] = scores.values()
    for arm, values in scores.items():
        gains = [ours - theirs for ours, theirs in zip(values, reference, strict=True)]
        table.add_row(
            arm,
            f"{statistics.mean(values):.4f}",
            f"{min(values):.4f} to {max(values):.4f}",
            f"{statistics.mean(gains):+.4f} ({min(gains):+.4f} to {max(gains):+.4f})",
        )
    Console(width=_WIDTH).print(table)
    return results


_PARTS: dict[str, Callable[[argparse.Namespace], Results]] = {
    "step": _measure_step,
    "naive": _measure_naive,
    "imbalance": lambda arguments: _measure_study(arguments, "imbalance"),
    "noise": lambda arguments: _measure_study(arguments, "noise"),
}


if __name__ == "__main__":
    sys.exit(main())
