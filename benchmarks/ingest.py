"""Compares ingest with other tools and with the limits of this machine, on your own images.

    uv run -m benchmarks.ingest --data DIR
    uv run -m benchmarks.ingest --data DIR --mode header --mode gs

Each figure comes from a fresh process, which first does the same work once unmeasured. Contenders
take turns, so that a slow minute of the machine affects all of them.
"""

import argparse
import gc
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks.gcs_server import GcsServer
from benchmarks.ingest_contenders import CONTENDERS, ingested, make_copies, prepare
from benchmarks.measuring import options
from benchmarks.measuring.process import measure, take_turns
from benchmarks.measuring.results import Figures, ratio, spread_all, write_results
from components.contract.errors import ConfigurationError

_MODULE = "benchmarks.ingest"

Figure = dict[str, float]
"""Wall and CPU seconds (child processes included), images per second, peak memory in MiB."""

# Shorter side of images of about 20 KB, pixels.
_SMALL_SIDE = 180
_LATENCY_MS = 30
"""Of the stores of modes gs and s3."""

_TITLES = {
    "header": "Bytes kept, header checked",
    "transform": "Transform to canonical 224 x 224",
    "gs": "From Cloud Storage, 30 ms per request, 20 KB images",
    "s3": "From S3, 30 ms per request, 20 KB images",
}


def _compare(arguments: argparse.Namespace) -> None:
    """Print a table per mode, or measure one contender in this process."""
    if arguments.contender:
        _measure_here(arguments)
        return
    if not arguments.data:
        raise ConfigurationError("--data DIR says where your images are")
    modes = arguments.mode or list(CONTENDERS)
    results: dict[str, dict[str, list[Figure]]] = {}
    tables = []
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        for mode in modes:
            results[mode] = _measure_mode(mode, work, arguments)
            tables.append(_tabulate(mode, arguments.images, results[mode]))
            tables[-1].show()
    write_results(_MODULE, tables, results, arguments.json)


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=5)
    parser.add_argument("--data", help="folder of label/image.jpg")
    options.add_counts(parser, images=(6400, "copies to work on, each unique"))
    parser.add_argument("--mode", action="append", choices=list(CONTENDERS), help="default: all")
    parser.add_argument(
        "--contenders", type=options.at_least_one, help="only the first so many; 1: only ours"
    )
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--source", help=argparse.SUPPRESS)
    return parser


def _measure_here(arguments: argparse.Namespace) -> None:
    """Time one contender in this process: once to warm up, once to count."""
    run = prepare(arguments.contender, arguments.mode[0])
    seconds = cpu_seconds = 0.0
    for _ in range(2):
        # As the local runner does after its imports, which take 0.3 s to search for cycles.
        gc.freeze()
        with tempfile.TemporaryDirectory(dir=arguments.work) as target:
            started, cpu_started = time.perf_counter(), _cpu_seconds()
            run(arguments.source, target)
            seconds, cpu_seconds = time.perf_counter() - started, _cpu_seconds() - cpu_started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mib": peak}))


def _cpu_seconds() -> float:
    """Return CPU seconds of this process and of the children it has waited for."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _measure_mode(mode: str, work: str, arguments: argparse.Namespace) -> dict[str, list[Figure]]:
    """Return the figures of every contender, one per process."""
    folder = f"{work}/{mode}"
    remote = mode in ("gs", "s3")
    source, count = f"{folder}/images", arguments.images
    side = _SMALL_SIDE if remote else None
    make_copies(arguments.data, source, count, side=side)
    if mode == "transform":
        ingested(source, folder)
        source = folder
        prepare("ours", mode)(source, f"{folder}/transformed")
    names = CONTENDERS[mode][: arguments.contenders]
    with _store(folder, mode) if remote else nullcontext(source) as place:
        figures = take_turns(
            names,
            arguments.repeats,
            lambda name: _in_a_process(name, mode, place, work, count),
            lambda figure: f"{figure['seconds']:.2f} s",
        )
    shutil.rmtree(folder)
    return figures


def _in_a_process(name: str, mode: str, source: str, work: str, images: int) -> Figure:
    """Measure a contender in a fresh process."""
    command = ["-m", _MODULE, "--contender", name, "--mode", mode]
    figure: Figure = measure([*command, "--source", source, "--work", work])
    figure["images_per_second"] = images / figure["seconds"]
    figure["cpu_microseconds"] = figure["cpu_seconds"] / images * 1e6
    return figure


@contextmanager
def _store(folder: str, scheme: str) -> Iterator[str]:
    """Serve `folder` as a bucket to the measuring processes; yield the URL of its images."""
    key = Path(folder, "key.json")
    with GcsServer({"bucket": folder}, latency_ms=_LATENCY_MS) as server:
        server.write_key(key)
        os.environ.update(
            FSSPEC_GS_ENDPOINT_URL=server.endpoint,
            FSSPEC_GS_TOKEN="anon",
            STORAGE_EMULATOR_HOST=server.endpoint,
            GOOGLE_APPLICATION_CREDENTIALS=str(key),
            AWS_ENDPOINT_URL=server.endpoint,
            AWS_ACCESS_KEY_ID="any",
            AWS_SECRET_ACCESS_KEY="any",
        )
        yield f"{scheme}://bucket/images"


def _tabulate(mode: str, images: int, figures: dict[str, list[Figure]]) -> Figures:
    """Return rates, our rate as a multiple of each, and CPU time per image."""
    columns = ("contender", "images/s", "ours is", "CPU µs per image", "peak memory")
    table = Figures(f"{_TITLES[mode]}, {images:,} images", columns)
    rates = spread_all(figures, "images_per_second")
    ours = rates.get("ours")
    for name, rate in rates.items():
        cpu, peak = (
            statistics.median(figure[key] for figure in figures[name])
            for key in ("cpu_microseconds", "peak_mib")
        )
        table.add(
            "this component" if name == "ours" else name,
            rate.show(),
            ratio(ours, rate) if ours and name != "ours" else "",
            f"{cpu:,.0f}",
            f"{peak:,.0f} MiB",
        )
    return table


if __name__ == "__main__":
    sys.exit(options.run(_parser(), _compare))
