"""Measures how time, memory and disk grow with the number of images.

    uv run -m benchmarks.scale --images 20000 --images 100000 --work DIR
    uv run -m benchmarks.scale --until SchemaGen --images 320000 --images 1280000 --work DIR
    uv run -m benchmarks.scale --grow --images 20000 --work DIR

Images are 16 x 16 pixels of noise, so that no two are the same. An exponent of 1 means twice the
images, twice the value. Memory is that of all processes of a run together, where shared pages count
in each. Needs 20 KB of disk for each image, 25 GB at most.

`--grow` adds 1% of new images, runs again into the same output, and prints the time of each step as
a fraction of that of the whole run.
"""

import argparse
import contextlib
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
import simplejpeg

from benchmarks.measuring import options
from benchmarks.measuring.process import QUIET, MeasurementError, end_with_parent, explain
from benchmarks.measuring.results import Figures, write_results
from components.contract.errors import ConfigurationError
from pipeline_def.runs.record import read_records
from pipeline_def.steps import SCHEMA_GEN

_MODULE = "benchmarks.scale"
_ROOT = Path(__file__).parents[1]
_OPTIONS = ("--model.name=cnn", "--training.epochs=1")
_SIDE, _CLASSES = 16, 1_000
_SIZE = f"--transform.size={_SIDE}"
_BYTES_EACH, _MOST_BYTES = 20_000, 25e9
_SECONDS_BETWEEN = 0.5
_PEAK = "peak MB of one process"

Figure = dict[str, Any]
"""Of one number of images: value of each measure."""


def main() -> int:
    """Measure each number of images, the smallest first; print values and exponents."""
    parser = options.make_parser(_MODULE, __doc__, repeats=1)
    parser.add_argument("--images", type=options.at_least_one, action="append", required=True)
    parser.add_argument("--grow", action="store_true", help="run again with 1%% more images")
    parser.add_argument("--until", choices=[SCHEMA_GEN.id], help="last step; default: all steps")
    arguments = parser.parse_args()
    return options.run(parser, lambda: _measure(arguments))


def _measure(arguments: argparse.Namespace) -> None:
    counts = sorted(set(arguments.images))
    if counts[-1] * _BYTES_EACH > _MOST_BYTES:
        raise ConfigurationError(f"{counts[-1]:,} images need more than 25 GB.")
    found: dict[int, Figure] = {}
    for images in counts:
        with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
            started = time.monotonic()
            write_images(Path(folder, "images"), images)
            print(f"{images:,} images written in {time.monotonic() - started:.0f} s", flush=True)
            found[images] = _run(Path(folder), arguments.until)
            if arguments.grow:
                write_images(Path(folder, "images"), max(1, images // 100), first=images)
                grown = _run(Path(folder), arguments.until)
                found[images] |= compare_grown(found[images], grown)
            print(f"{images:,}: {_show(found[images])}", flush=True)
    table = tabulate(found)
    table.show()
    figures = {f"{images} images": [figure] for images, figure in found.items()}
    write_results(_MODULE, [table], figures, arguments.json)


def write_images(folder: Path, images: int, first: int = 0) -> None:
    """Write JPEGs of noise, numbered from `first`, in as many processes as there are CPUs."""
    with multiprocessing.get_context("spawn").Pool() as pool:
        work = ((folder, label, images, first) for label in range(min(_CLASSES, images)))
        for _ in pool.imap_unordered(_write_class, work, chunksize=8):
            pass


def _write_class(work: tuple[Path, int, int, int]) -> None:
    folder, label, images, first = work
    numbers = range(first + label, first + images, _CLASSES)
    random = np.random.default_rng([label, first])
    place = folder / f"class_{label:04d}"
    place.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        pixels = random.integers(0, 256, (_SIDE, _SIDE, 3), np.uint8)
        (place / f"{number:08d}.jpg").write_bytes(simplejpeg.encode_jpeg(pixels, quality=85))


def compare_grown(whole: Figure, grown: Figure) -> Figure:
    """Return the times of a run with a few more images as fractions of those of the whole run."""
    times = (name for name in whole if name.endswith("seconds") or name.startswith("s of "))
    return {
        f"{name}: 1% more / all": grown[name] / whole[name]
        for name in times
        if whole[name] and grown.get(name) is not None
    }


def _run(folder: Path, until: str | None) -> Figure:
    """Run the pipeline in a fresh process; return seconds, CPU seconds, memory and disk."""
    command = ["schema", _SIZE] if until else ["run", _SIZE, *_OPTIONS]
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
