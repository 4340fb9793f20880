"""Measures how time, memory and disk grow with the number of images.

    uv run -m benchmarks.scale --images 20000 --images 100000 --work DIR
    uv run -m benchmarks.scale --until SchemaGen --images 320000 --images 1280000 --work DIR
    uv run -m benchmarks.scale --grow --images 20000 --work DIR
    uv run -m benchmarks.scale --fit --work DIR

Images are 16 x 16 pixels of noise, so that no two are the same. An exponent of 1 means twice the
images, twice the value. Memory is that of all processes of a run together, where shared pages count
in each. Needs 20 KB of disk for each image, 25 GB at most.

`--grow` adds 1% of new images, runs again into the same output, and prints the time of each step as
a fraction of that of the whole run.

`--fit` measures the slopes of `inspect --plan` from three other runs and writes them to
pipeline_def/local/growth.json. Later runs print how long they should have taken by them.
"""

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.optimize
import simplejpeg

from benchmarks.measuring import options
from benchmarks.measuring.process import QUIET, MeasurementError, end_with_parent, explain
from benchmarks.measuring.results import Figures, describe_measurement, write_results
from components.contract.errors import ConfigurationError
from components.host.machine import available_cpus, available_memory, fits_in_memory
from components.ingest.ingest_run import ingest_listing
from components.ingest.plan_processes import PlanProcesses
from components.ingest.plan_writer import IngestJob
from components.ingest.shard_plan import count_shards
from components.ingest.source.lookup import list_images
from pipeline_def.config.command_line import parse
from pipeline_def.local.first_look import look
from pipeline_def.local.growth import (
    GROWTH_FILE,
    Load,
    driver_bytes,
    held_bytes,
    plan_steps,
    read_growth,
    weigh,
)
from pipeline_def.runs.record import read_records
from pipeline_def.steps import EXAMPLE_GEN, SCHEMA_GEN

_MODULE = "benchmarks.scale"
_ROOT = Path(__file__).parents[1]
_OPTIONS = ("--model.name=cnn", "--training.epochs=1")
_SIDE, _CLASSES = 16, 1_000
_FIT = ((5_000, _SIDE, _SIDE), (80_000, _SIDE, _SIDE), (2_000, 256, 96))
"""Images, their side and that of Transform's images, of the runs that give the slopes."""
_BYTES_EACH, _MOST_BYTES = 20_000, 25e9
_SECONDS_BETWEEN = 0.5
_PEAK = "peak MB of one process"

Figure = dict[str, Any]
"""Of one number of images: value of each measure."""


def main() -> int:
    """Measure each number of images, the smallest first; print values and exponents."""
    parser = options.make_parser(_MODULE, __doc__, repeats=1)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--images", type=options.at_least_one, action="append")
    wanted.add_argument("--fit", action="store_true", help="measure the slopes of inspect --plan")
    parser.add_argument("--grow", action="store_true", help="run again with 1%% more images")
    parser.add_argument("--until", choices=[SCHEMA_GEN.id], help="last step; default: all steps")
    arguments = parser.parse_args()
    return options.run(parser, lambda: _measure(arguments))


def _measure(arguments: argparse.Namespace) -> None:
    work = _FIT if arguments.fit else [(n, _SIDE, _SIDE) for n in sorted(set(arguments.images))]
    if max(images for images, *_ in work) * _BYTES_EACH > _MOST_BYTES:
        raise ConfigurationError(f"{work[-1][0]:,} images need more than 25 GB.")
    found: dict[int, Figure] = {}
    loads: list[Load] = []
    serial = 0.0
    for images, side, size in work:
        with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
            started = time.monotonic()
            write_images(Path(folder, "images"), images, side)
            print(f"{images:,} images written in {time.monotonic() - started:.0f} s", flush=True)
            loads.append(_weigh(folder, size))
            found[images] = _run(Path(folder), arguments.until, size)
            if arguments.grow:
                write_images(Path(folder, "images"), max(1, images // 100), side, first=images)
                grown = _run(Path(folder), arguments.until, size)
                found[images] |= compare_grown(found[images], grown)
            if arguments.fit and side == _SIDE:
                serial = _seconds_alone(Path(folder)) / images
            elif not arguments.fit:
                found[images] |= compare_planned(loads[-1], found[images])
            print(f"{images:,}: {_show(found[images])}", flush=True)
    table = tabulate(found)
    table.show()
    if arguments.fit:
        _write_growth(fit(loads, list(found.values())), serial)
    figures = {f"{images} images": [figure] for images, figure in found.items()}
    write_results(_MODULE, [table], figures, arguments.json)


def write_images(folder: Path, images: int, side: int = _SIDE, first: int = 0) -> None:
    """Write JPEGs of noise, numbered from `first`, in as many processes as there are CPUs."""
    with multiprocessing.get_context("spawn").Pool() as pool:
        work = ((folder, label, images, side, first) for label in range(min(_CLASSES, images)))
        for _ in pool.imap_unordered(_write_class, work, chunksize=8):
            pass


def _write_class(work: tuple[Path, int, int, int, int]) -> None:
    folder, label, images, side, first = work
    numbers = range(first + label, first + images, _CLASSES)
    random = np.random.default_rng([label, first])
    place = folder / f"class_{label:04d}"
    place.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        pixels = random.integers(0, 256, (side, side, 3), np.uint8)
        (place / f"{number:08d}.jpg").write_bytes(simplejpeg.encode_jpeg(pixels, quality=85))


def _weigh(folder: str, size: int) -> Load:
    """Return the load of a run, as `inspect --plan` does."""
    argv = [f"--data={folder}/images", f"--transform.size={size}", *_OPTIONS]
    config, _ = parse(argv, prog=_MODULE, usage="")
    listing = list_images(f"{folder}/images", config.ingest)
    seen = look(listing, config)
    shards = count_shards(listing, config.ingest)
    return weigh(listing, seen.survey, 1.0, seen.config, shards)


def compare_planned(load: Load, figure: Figure) -> Figure:
    """Return how long the run and its longer steps should have taken, and with which memory."""
    growth, memory = read_growth(), available_memory()
    planned = plan_steps(load, growth, workers=1, memory=memory)
    held = held_bytes(load) if fits_in_memory(int(held_bytes(load)), memory) else 0
    whole = {
        "seconds": sum(row.seconds for row in planned),
        _PEAK: (driver_bytes(load, growth) + held) / 1e6,
    }
    return {
        **{f"planned {name}": value for name, value in whole.items()},
        **{f"planned / measured {name}": value / figure[name] for name, value in whole.items()},
        **{f"planned s of {row.step}": row.seconds for row in planned},
    }


def compare_grown(whole: Figure, grown: Figure) -> Figure:
    """Return the times of a run with a few more images as fractions of those of the whole run."""
    times = (name for name in whole if name.endswith("seconds") or name.startswith("s of "))
    return {
        f"{name}: 1% more / all": grown[name] / whole[name]
        for name in times
        if whole[name] and grown.get(name) is not None
    }


def _seconds_alone(folder: Path) -> float:
    """Return the seconds of ingest that no other worker could take over."""
    writing = 0.0

    def write(numbers: Sequence[int], job: IngestJob) -> None:
        nonlocal writing
        started = time.monotonic()
        processes = PlanProcesses(job)
        for number in numbers:
            processes.write_plan(number)
        processes.close()
        writing += time.monotonic() - started

    started = time.monotonic()
    listing = list_images(str(folder / "images"))
    config = parse([], prog=_MODULE, usage="")[0].ingest
    examples, rejects = str(folder / "examples"), str(folder / "rejects")
    ingest_listing(listing, config, examples=examples, rejects=rejects, write=write)
    return time.monotonic() - started - writing


def fit(loads: Sequence[Load], figures: Sequence[Figure]) -> dict[str, Any]:
    """Return the slopes with which `plan_steps` would have planned these runs."""
    amounts = [load.amounts() for load in loads]
    steps = {
        step: _solve([of[step] for of in amounts], [figure[f"s of {step}"] for figure in figures])
        for step in amounts[0]
    }
    # Also what passes before the first step and after the last one.
    others = [f["seconds"] - sum(f[f"s of {step}"] for step in steps) for f in figures]
    held = [held_bytes(load) / 1e6 for load in loads]
    peaks = [f[_PEAK] - mb for f, mb in zip(figures, held, strict=True)]
    most = max(range(len(loads)), key=lambda number: loads[number].images)
    beside = figures[most]["MB of artifacts"] - loads[most].stored - loads[most].canonical
    return {
        "steps": {**steps, "others": {"start": sum(others) / len(others)}},
        "memory": _solve([{"images": load.images} for load in loads], peaks),
        "disk": {"images": beside / loads[most].images},
    }


def _solve(amounts: Sequence[Mapping[str, float]], values: Sequence[float]) -> dict[str, float]:
    """Return `start` and the slope of each unit, none below 0, with the least relative errors."""
    rows = [[1.0, *of.values()] for of in amounts]
    weights = 1 / np.asarray(values)
    slopes, _ = scipy.optimize.nnls(np.asarray(rows) * weights[:, None], np.ones(len(values)))
    return dict(zip(["start", *amounts[0]], slopes.tolist(), strict=True))


def _write_growth(growth: dict[str, Any], serial: float) -> None:
    growth["steps"][EXAMPLE_GEN.id]["serial"] = serial
    growth = {"measured": describe_measurement(_MODULE), "cores": available_cpus(), **growth}
    GROWTH_FILE.write_text(json.dumps(growth, indent=1) + "\n", encoding="utf-8")
    print(GROWTH_FILE)


def _run(folder: Path, until: str | None, size: int) -> Figure:
    """Run the pipeline in a fresh process; return seconds, CPU seconds, memory and disk."""
    options = [f"--transform.size={size}", *_OPTIONS]
    command = ["schema", *options[:1]] if until else ["run", *options]
    places = ("--data", f"{folder}/images", "--output", f"{folder}/output")
    started = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "local_runner.py", *command, *places],
            cwd=_ROOT,
            env={**os.environ, **QUIET},
            stdout=said,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent,
        )
        with _watching(process.pid) as peak:
            _, status, used = os.wait4(process.pid, 0)
        if status:
            said.seek(0)
            raise MeasurementError(explain(said.read().decode(errors="replace"), status))
    steps = read_records(f"{folder}/output")[-1].steps
    return {
        "seconds": time.monotonic() - started,
        "CPU seconds": used.ru_utime + used.ru_stime,
        "peak MB of all processes": peak[0] / 1e6,
        _PEAK: used.ru_maxrss * 1024 / 1e6,
        "MB of artifacts": _measure_folder(folder / "output" / "artifacts") / 1e6,
        **{f"s of {name}": step.seconds for name, step in steps.items()},
    }


@contextlib.contextmanager
def _watching(pid: int) -> Iterator[list[int]]:
    """Yield a list of one number: the most bytes that a process and its children have held."""
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(_SECONDS_BETWEEN):
            with contextlib.suppress(psutil.Error):
                tree = psutil.Process(pid)
                held = sum(of.memory_info().rss for of in (tree, *tree.children(recursive=True)))
                peak[0] = max(peak[0], held)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _measure_folder(folder: Path) -> int:
    """Return the bytes of a folder; hard links count once."""
    files = {(status := path.stat()).st_ino: status.st_size for path in folder.rglob("*")}
    return sum(files.values())


def tabulate(found: Mapping[int, Figure]) -> Figures:
    """Return a table of each measure, and of its growth from the first to the last number."""
    counts = list(found)
    first, last = found[counts[0]], found[counts[-1]]
    names = [f"{count:,} images" for count in counts]
    table = Figures("Growth with the number of images", ("", *names, "exponent"))
    for name in last:
        values = [found[count].get(name) or 0.0 for count in counts]
        table.add(name, *map(_number, values), _exponent(counts, first, last, name))
    return table


def _exponent(counts: Sequence[int], first: Figure, last: Figure, name: str) -> str:
    if len(counts) < 2 or not (first.get(name) and last.get(name)):
        return ""
    return f"{math.log(last[name] / first[name]) / math.log(counts[-1] / counts[0]):.2f}"


def _number(value: float) -> str:
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}"


def _show(figure: Figure) -> str:
    return ", ".join(f"{name} {_number(value or 0)}" for name, value in figure.items())


if __name__ == "__main__":
    sys.exit(main())
