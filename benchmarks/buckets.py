"""How much longer a whole run takes from and to buckets than from and to a disk.

    uv run -m benchmarks.buckets --latency-ms 30

The built-in digits, in turn: from and to a disk, and from and to our own server of Cloud Storage,
under Google's names and TLS. The server is a process of its own and shares the machine. Each run
begins anew.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.gcs_server.tls_proxy import TlsGcsServer
from benchmarks.measuring import options
from benchmarks.measuring.process import MeasurementError
from benchmarks.measuring.progress import Progress, announce
from benchmarks.measuring.spread import Spread, ratio
from pipeline_def.local.sample import write_digits

_MODULE = "benchmarks.buckets"
_ROOT = Path(__file__).parents[1]
_PLACES = ("disk", "buckets")

# A run from a disk, and what a millisecond of latency adds to one from buckets; seconds.
_RUN, _PER_MS = 35, 1.0

# Wall and CPU seconds of runs; the server's are left out.
Figures = dict[str, dict[str, list[float]]]


def main() -> int:
    """Run in turn, and print a table."""
    parser = _parser()
    arguments = parser.parse_args()
    return options.run(parser, lambda: _compare(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=3)
    parser.add_argument("--latency-ms", type=float, default=0, help="of each request; default: 0")
    options.add_work(parser)
    return parser


def _compare(arguments: argparse.Namespace) -> None:
    announce(arguments.repeats * (2 * _RUN + _PER_MS * arguments.latency_ms))
    figures: Figures = {place: {"wall": [], "CPU": []} for place in _PLACES}
    progress = Progress(arguments.repeats * len(_PLACES))
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        write_digits(f"{folder}/digits")
        for _ in range(arguments.repeats):
            for place in _PLACES:
                wall, cpu = _measure(Path(folder), place, arguments.latency_ms)
                figures[place]["wall"].append(wall)
                figures[place]["CPU"].append(cpu)
                progress.report(f"{place}: {wall:.1f} s, {cpu:.1f} s of CPU time")
    _print(figures)
    options.write_json(figures, arguments.json)


def _measure(folder: Path, place: str, latency_ms: float) -> tuple[float, float]:
    output = folder / "output"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    if place == "disk":
        return _run(["--data", f"{folder}/digits", "--output", str(output)], {})
    with TlsGcsServer({"data": folder / "digits"}, latency_ms=latency_ms) as server:
        server.add_bucket("out")
        places = ("--data", "gs://data", "--output", "gs://out/run", "--working_copy", str(output))
        return _run(places, server.python_environment(folder))


def _run(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the wall and CPU seconds of a run, with the processes that it starts."""
    before, started = os.times(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "local_runner.py", "run", *arguments],
        cwd=_ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    after = os.times()
    if done.returncode:
        raise MeasurementError(f"a run ended with status {done.returncode}: {done.stderr[-500:]}")
    cpu = sum(after[2:4]) - sum(before[2:4])
    return time.monotonic() - started, cpu


def _print(figures: Figures) -> None:
    table = Table("seconds", *_PLACES, "buckets to disk")
    for unit in ("wall", "CPU"):
        disk, buckets = (Spread.of(figures[place][unit]) for place in _PLACES)
        cells = (f"{of.median:.1f} ({of.low:.1f} to {of.high:.1f})" for of in (disk, buckets))
        table.add_row(unit, *cells, ratio(buckets, disk))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
