"""Measures whole runs of `local_runner.py`: time, CPU time, memory, and the time of each step.

    uv run -m benchmarks.runs --part digits --part buckets
    uv run -m benchmarks.runs --part many --images 60000 --classes 1000
    uv run -m benchmarks.runs --part grown --data DIR
    uv run -m benchmarks.runs --part weights --data DIR --each 50

digits: the built-in sample, first into an empty folder, then again, all from the cache. buckets:
the first run with images and output in an emulated Cloud Storage, under TLS, which shares the
machine. many: small images in many classes. grown: the last two classes of a folder are new, and
training starts from random weights, or from the model of the others. weights: what the default
network brings, from ImageNet's weights, over its last layer alone and over random weights, with
another seed in each repeat; a folder `test` in DIR judges all.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import options
from benchmarks.measuring.process import QUIET, MeasurementError, Progress, end_with_parent
from benchmarks.measuring.results import Figures, Spread, write_results
from components.contract.errors import ConfigurationError
from pipeline_def.layout import Layout
from pipeline_def.local.preparation import write_digits

_MODULE = "benchmarks.runs"
_ROOT = Path(__file__).parents[1]
_SMALL = ("--transform.size=16", "--model.name=cnn", "--training.epochs=1")

Figure = dict[str, Any]
"""Of one run: wall and CPU seconds, peak MiB of its largest process, and its summary."""


def main() -> int:
    """Measure what the command line asks for; print a table per part."""
    parser = _parser()
    arguments = parser.parse_args()
    return options.run(parser, lambda: _measure(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=3)
    parts = ("digits", "buckets", "many", "grown", "weights")
    parser.add_argument("--part", action="append", required=True, choices=parts)
    parser.add_argument("--data", help="parts grown and weights: folder of images")
    parser.add_argument("--each", type=options.at_least_one, help="part weights: images a class")
    many = {"--images": (16_000, "part many: images"), "--classes": (1_000, "part many: classes")}
    for name, (default, what) in many.items():
        parser.add_argument(name, type=options.at_least_one, default=default, help=what)
    return parser


def _measure(arguments: argparse.Namespace) -> None:
    figures: dict[str, list[Figure]] = {}
    tables = []
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        write_digits(f"{folder}/digits")
        if {"digits", "buckets"} & set(arguments.part):
            figures |= _run_digits(arguments, Path(folder))
            tables.append(_tabulate("Whole runs of the 1,797 digits", figures))
        if "many" in arguments.part:
            many = {"many": [_run_many(arguments, Path(folder))]}
            title = f"{arguments.images:,} images of 16 pixels in {arguments.classes:,} classes"
            tables.append(_tabulate(title, many))
            figures |= many
        if "grown" in arguments.part:
            grown = _run_grown(arguments, Path(folder))
            tables.append(_tabulate("Two more classes, from scratch and with a warm start", grown))
            figures |= grown
        if "weights" in arguments.part:
            weights = _run_weights(arguments, Path(folder))
            tables.append(_tabulate("Training from different weights", weights))
            figures |= weights
    for table in tables:
        table.show()
    write_results(_MODULE, tables, figures, arguments.json)


def _run_digits(arguments: argparse.Namespace, folder: Path) -> dict[str, list[Figure]]:
    """Run the digits from and to the disk, again from the cache, and from and to buckets."""
    names = ["first run", "again, from the cache"] if "digits" in arguments.part else []
    names += ["first run, from and to buckets"] if "buckets" in arguments.part else []
    progress = Progress(arguments.repeats * len(names), kinds=len(names))
    figures: dict[str, list[Figure]] = {name: [] for name in names}
    for _ in range(arguments.repeats):
        for name in names:
            output = folder / ("tfx-image-pipeline/gs/out/run" if "buckets" in name else "output")
            if "again" not in name:
                shutil.rmtree(output, ignore_errors=True)
                output.mkdir(parents=True)
            run = _run_in_buckets if "buckets" in name else _run_on_disk
            figures[name].append(run(folder, output))
            progress.report(f"{name}: {figures[name][-1]['seconds']:.1f} s")
    return figures


def _run_on_disk(folder: Path, output: Path) -> Figure:
    return _run(["--data", f"{folder}/digits", "--output", str(output)], output)


def _run_in_buckets(folder: Path, output: Path) -> Figure:
    from benchmarks.gcs_server.tls_proxy import TlsGcsServer

    with TlsGcsServer({"data": folder / "digits"}) as server:
        server.add_bucket("out")
        places = ("--data", "gs://data", "--output", "gs://out/run")
        environment = server.python_environment(folder) | {"XDG_STATE_HOME": str(folder)}
        return _run(places, output, environment)


def _run_many(arguments: argparse.Namespace, folder: Path) -> Figure:
    """Write images of noise, so that no two are the same, and run the pipeline on them."""
    import numpy as np
    import simplejpeg

    pixels = np.random.default_rng(0).integers(0, 255, (arguments.images, 16, 16, 3), np.uint8)
    for number, image in enumerate(pixels):
        label = folder / "many" / f"class {number % arguments.classes:05d}"
        label.mkdir(parents=True, exist_ok=True)
        (label / f"{number}.jpg").write_bytes(simplejpeg.encode_jpeg(image))
    output = folder / "of_many"
    return _run(["--data", f"{folder}/many", "--output", str(output), *_SMALL], output)


def _run_grown(arguments: argparse.Namespace, folder: Path) -> dict[str, list[Figure]]:
    """Train on a folder without its last two classes, then on all, cold and warm."""
    if not arguments.data:
        raise ConfigurationError("part grown needs --data, a folder of images")
    labels = sorted({file.parent.name for file in Path(arguments.data).rglob("*.*")})
    known = folder / "known"
    shutil.copytree(arguments.data, known, ignore=shutil.ignore_patterns(*labels[-2:]))
    progress = Progress(3 * arguments.repeats, kinds=3)
    figures: dict[str, list[Figure]] = {}
    for seed in map(str, range(1, arguments.repeats + 1)):
        for name, data, output, chosen in (
            ("the first classes", str(known), "on", ()),
            ("all, from random weights", arguments.data, "anew", ()),
            (
                "all, from the model of the first",
                arguments.data,
                "on",
                ("--model.warm_start=true",),
            ),
        ):
            place = folder / f"{output}{seed}"
            words = ["--data", data, "--output", str(place), "--training.seed", seed, *chosen]
            figures.setdefault(name, []).append(_run(words, place))
            progress.report(f"seed {seed}, {name}")
    return figures


def _run_weights(arguments: argparse.Namespace, folder: Path) -> dict[str, list[Figure]]:
    """Train on some images of each class from random weights, the head alone, and by default."""
    if not arguments.data:
        raise ConfigurationError("part weights needs --data, a folder of images")
    figures: dict[str, list[Figure]] = {}
    progress = Progress(3 * arguments.repeats, kinds=3)
    for seed in range(1, arguments.repeats + 1):
        data = folder / f"some{seed}"
        for label in sorted({file.parent for file in Path(arguments.data).rglob("*.*")}):
            files = sorted(label.iterdir())
            if label.parent.name != "test" and arguments.each:
                files = random.Random(seed).sample(files, min(arguments.each, len(files)))
            target = data / label.relative_to(arguments.data)
            target.mkdir(parents=True)
            for file in files:
                (target / file.name).symlink_to(file.resolve())
        for name, chosen in (
            ("random weights", "--model.weights=none"),
            ("ImageNet's weights, the last layer", "--transfer.unfreeze=none"),
            ("ImageNet's weights, by default", "--transfer.unfreeze=top"),
        ):
            place = folder / f"output{seed}"
            shutil.rmtree(place, ignore_errors=True)
            words = ["--data", str(data), "--output", str(place), f"--training.seed={seed}", chosen]
            figures.setdefault(name, []).append(_run(words, place))
            progress.report(f"seed {seed}, {name}: {figures[name][-1]['accuracy']:.3f}")
    return figures


def _run(
    arguments: Sequence[str], output: Path, environment: Mapping[str, str] | None = None
) -> Figure:
    """Run the pipeline in a fresh process; return time, memory and results."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "local_runner.py", "run", *arguments],
            cwd=_ROOT,
            env={**os.environ, **QUIET, **(environment or {})},
            stdout=said,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent,
        )
        _, status, used = os.wait4(process.pid, 0)
        if status:
            said.seek(0)
            last = said.read()[-500:].decode(errors="replace")
            raise MeasurementError(f"a run failed: {last}")
    return {
        "seconds": time.monotonic() - started,
        "cpu": used.ru_utime + used.ru_stime,
        "mib": used.ru_maxrss / 1024,
        **read_results(output),
    }


def read_results(output: Path) -> Figure:
    """Return accuracy, step times and size of the report of the last run in a folder."""
    summary = json.loads(Path(Layout(str(output)).summary).read_text())
    return {
        "accuracy": summary["metrics"]["accuracy"],
        "nodes": summary["nodes"],
        "report_mb": (output / "report.html").stat().st_size / 1e6,
    }


def _tabulate(title: str, figures: Mapping[str, list[Figure]]) -> Figures:
    measured = ("seconds", "CPU seconds", "peak memory", "accuracy", "report", "longest steps")
    table = Figures(title, ("run", *measured))
    for name, runs in figures.items():
        table.add(
            name,
            Spread.of([run["seconds"] for run in runs]).show(1),
            Spread.of([run["cpu"] for run in runs]).show(1),
            f"{max(run['mib'] for run in runs):,.0f} MiB",
            Spread.of([run["accuracy"] for run in runs]).show(3),
            f"{runs[-1]['report_mb']:.1f} MB",
            _longest(runs),
        )
    return table


def _longest(runs: list[Figure]) -> str:
    """Return the three steps that took longest, by their medians."""
    medians = {
        name: Spread.of([run["nodes"][name]["seconds"] or 0.0 for run in runs]).median
        for name in runs[0]["nodes"]
    }
    steps = sorted(medians, key=lambda name: -medians[name])[:3]
    return ", ".join(f"{name} {medians[name]:.1f} s" for name in steps)


if __name__ == "__main__":
    sys.exit(main())
