"""How much longer a whole run takes from and to buckets than from and to a disk.

The built-in digits, by turns: from a disk, and from our own server of Cloud Storage, under Google's
names and TLS. The server is a process of its own, but shares the machine. Each run begins anew.

`uv run -m benchmarks.buckets --rounds 3 --latency-ms 0`
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.gcs_server.tls_proxy import TlsGcsServer
from pipeline_def.local.sample import write_digits

_ROOT = Path(__file__).parents[1]


class Cost(NamedTuple):
    """What a run takes, in seconds."""

    wall: float
    cpu: float
    """Of the process and those that it starts, not of the server."""


def main() -> None:
    """Run by turns, and print a line for each run, and the ratios."""
    options = _parser().parse_args()
    costs: dict[str, list[Cost]] = {"disk": [], "bucket": []}
    with tempfile.TemporaryDirectory() as folder:
        write_digits(f"{folder}/digits")
        for _ in range(options.rounds):
            for place, measured in costs.items():
                measured.append(_measure(Path(folder), place, latency_ms=options.latency_ms))
                print(
                    f"{place:8} {measured[-1].wall:6.1f} s, {measured[-1].cpu:5.1f} s of CPU time"
                )
    for unit in Cost._fields:
        disk, bucket = ([getattr(cost, unit) for cost in of] for of in costs.values())
        print(f"{unit:8} {_describe(bucket)} / {_describe(disk)}: {_ratio(bucket, disk):.2f} x")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.buckets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs from and to each")
    parser.add_argument("--latency-ms", type=float, default=0, help="of each request to a bucket")
    return parser


def _measure(folder: Path, place: str, *, latency_ms: float) -> Cost:
    output = folder / "output"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    if place == "disk":
        return _run(["--data", f"{folder}/digits", "--output", str(output)], {})
    with TlsGcsServer({"data": folder / "digits"}, latency_ms=latency_ms) as server:
        server.add_bucket("out")
        places = ("--data", "gs://data", "--output", "gs://out/run", "--working_copy", str(output))
        return _run(places, server.python_environment(folder))


def _run(arguments: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """Run the pipeline, whose CPU time is that of the children of this process."""
    before, started = os.times(), time.monotonic()
    subprocess.run(
        [sys.executable, "local_runner.py", "run", *arguments],
        cwd=_ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])
    return Cost(time.monotonic() - started, cpu)


def _ratio(bucket: Sequence[float], disk: Sequence[float]) -> float:
    return statistics.median(bucket) / statistics.median(disk)


def _describe(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f} s ({min(seconds):.1f}–{max(seconds):.1f})"


if __name__ == "__main__":
    main()
