"""Measures whole runs of `local_runner.py`: time, CPU time, memory, and the time of each step.

    uv run -m benchmarks.runs --part digits --part buckets
    uv run -m benchmarks.runs --part many --images 60000 --classes 1000
    uv run -m benchmarks.runs --part photos --data DIR
    uv run -m benchmarks.runs --part weights --data DIR --each 50

digits: the built-in sample, first into an empty folder, then again, all from the cache, and with
one image more. many: the same for small images in many classes. photos: for copies of photographs.
buckets: the first run with images and output in an emulated Cloud Storage, under TLS, which shares
the machine. weights: what the default network brings, from ImageNet's weights, over its last layer
alone and over random weights, with another seed in each repeat; a folder `test` in DIR judges all.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

from benchmarks.ingest_contenders import make_copies
from benchmarks.measuring import options
from benchmarks.measuring.process import Progress, run_pipeline
from benchmarks.measuring.results import Figures, Spread, write_results
from components.contract.errors import ConfigurationError
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_source
from pipeline_def.layout import Layout
from pipeline_def.local.preparation import write_digits
from pipeline_def.runs.record import read_records
from pipeline_def.steps import TRAINER

_MODULE = "benchmarks.runs"
_ROOT = Path(__file__).parents[1]
_SHORT = ("--transform.size=96", "--model.name=cnn", "--training.epochs=1", "--model.weights=none")
_SMALL = ("--transform.size=16", "--model.name=cnn", "--training.epochs=1")

Figure = dict[str, Any]
"""Of one run: wall and CPU seconds, peak MiB of its largest process, and its summary."""


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=3)
    parts = ("digits", "buckets", "many", "photos", "weights")
    parser.add_argument("--part", action="append", required=True, choices=parts)
    parser.add_argument("--data", help="parts photos and weights: folder of images")
    parser.add_argument("--each", type=options.at_least_one, help="part weights: images a class")
    options.add_counts(
        parser,
        images=(16_000, "part many: images"),
        classes=(1_000, "part many: classes"),
        photos=(1_000, "part photos: copies of images in --data"),
    )
    return parser


def _measure(arguments: argparse.Namespace) -> None:
    figures: dict[str, list[Figure]] = {}
    tables = []
    if not arguments.data and {"photos", "weights"} & {*arguments.part}:
        raise ConfigurationError("parts photos and weights need --data, a folder of images")
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        folder = Path(work)
        for part in arguments.part:
            if part == "weights":
                title, found = "Training from different weights", _run_weights(arguments, folder)
            elif part == "buckets":
                title = "Whole runs of the 1,797 digits, from and to buckets"
                write_digits(f"{folder}/digits")
                found = {"first run": [_run_in_buckets(folder) for _ in range(arguments.repeats)]}
            else:
                title, *options_ = _write_images(part, arguments, folder)
                found = _run_thrice(folder / part, options_, arguments.repeats)
                if part == "many":
                    title += f", listed in {_time_listing(folder / part):.1f} s"
            figures |= {f"{part}: {name}": runs for name, runs in found.items()}
            tables.append(_tabulate(title, found))
    for table in tables:
        table.show()
    write_results(_MODULE, tables, figures, arguments.json)


def _write_images(part: str, arguments: argparse.Namespace, folder: Path) -> tuple[str, ...]:
    """Write the images of a part; return a title, and options of the runs."""
    if part == "digits":
        write_digits(f"{folder}/{part}")
        return ("Whole runs of the 1,797 digits",)
    if part == "photos":
        make_copies(arguments.data, f"{folder}/{part}", arguments.photos)
        return (f"Whole runs of {arguments.photos:,} photographs", *_SHORT)
    # Noise, so that no two are the same.
    pixels = np.random.default_rng(0).integers(0, 255, (arguments.images, 16, 16, 3), np.uint8)
    for number, image in enumerate(pixels):
        label = folder / part / f"class {number % arguments.classes:05d}"
        label.mkdir(parents=True, exist_ok=True)
        (label / f"{number}.jpg").write_bytes(simplejpeg.encode_jpeg(image))
    title = f"{arguments.images:,} images of 16 pixels in {arguments.classes:,} classes"
    return (title, *_SMALL)


def _run_thrice(data: Path, chosen: Sequence[str], repeats: int) -> dict[str, list[Figure]]:
    """Run on a folder, on the same folder again, and with one image more."""
    names = ("first run", "again, from the cache", "with one image more")
    progress = Progress(repeats * len(names))
    figures: dict[str, list[Figure]] = {}
    output = data.with_name(f"output of {data.name}")
    for number in range(repeats):
        shutil.rmtree(output, ignore_errors=True)
        for name in names:
            if name == names[2]:
                picture = next(path for path in sorted(data.rglob("*.*")) if path.is_file())
                # What follows the end of an image makes it another one.
                added = picture.with_stem(f"added {number}")
                added.write_bytes(picture.read_bytes() + b"\0" * (number + 1))
            words = ["--data", str(data), "--output", str(output), *chosen]
            figures.setdefault(name, []).append(_run(words, output))
            progress.report(f"{name}: {figures[name][-1]['seconds']:.1f} s")
    return figures


def _time_listing(data: Path) -> float:
    started = time.monotonic()
    list_source(str(data), IngestConfig())
    return time.monotonic() - started


def _run_in_buckets(folder: Path) -> Figure:
    from benchmarks.gcs_server.tls_proxy import TlsGcsServer

    output = folder / "tfx-image-pipeline/gs/out/run"
    shutil.rmtree(output, ignore_errors=True)
    with TlsGcsServer({"data": folder / "digits"}) as server:
        server.add_bucket("out")
        places = ("--data", "gs://data", "--output", "gs://out/run")
        environment = server.python_environment(folder) | {"XDG_STATE_HOME": str(folder)}
        return _run(places, output, environment)


def _run_weights(arguments: argparse.Namespace, folder: Path) -> dict[str, list[Figure]]:
    """Train on some images of each class from random weights, the head alone, and by default."""
    figures: dict[str, list[Figure]] = {}
    progress = Progress(3 * arguments.repeats)
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
    began = time.time()
    seconds, used = run_pipeline(arguments, environment)
    return {
        "seconds": seconds,
        "cpu": used.ru_utime + used.ru_stime,
        "mib": used.ru_maxrss / 1024,
        "until_training": _find_training(output) - began,
        **read_results(output),
    }


def _find_training(output: Path) -> float:
    """Return the Unix time at which the training of the last run started."""
    trainer = read_records(str(output))[-1].steps[TRAINER.id]
    return datetime.fromisoformat(trainer.started).timestamp()


def read_results(output: Path) -> Figure:
    """Return accuracy, step times and size of the report of the last run in a folder."""
    summary = json.loads(Path(Layout(str(output)).summary).read_text())
    return {
        "accuracy": summary["metrics"]["accuracy"],
        "nodes": summary["nodes"],
        "report_mb": (output / "report.html").stat().st_size / 1e6,
    }


def _tabulate(title: str, figures: Mapping[str, list[Figure]]) -> Figures:
    times = ("seconds", "until training", "CPU seconds")
    table = Figures(title, ("run", *times, "peak memory", "accuracy", "report", "longest steps"))
    for name, runs in figures.items():
        table.add(
            name,
            Spread.of([run["seconds"] for run in runs]).show(1),
            Spread.of([run["until_training"] for run in runs]).show(1),
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
    sys.exit(options.run(_parser(), _measure))
