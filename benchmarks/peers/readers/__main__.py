"""Measures the input pipeline of one peer, in the peer's own environment; prints JSON.

    /tmp/peers/torch/bin/python -m benchmarks.peers.readers torch --data DIR --storage jpeg

Run from the root of this repository; DIR is what `benchmarks.peers.input_data` has written.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

from benchmarks.measuring.cpu import cpu_seconds
from benchmarks.peers.readers.compiled import dali_epochs, ffcv_epochs
from benchmarks.peers.readers.job import LABELS, STORAGES, Epoch, Job
from benchmarks.peers.readers.loaders import grain_epochs, spdl_epochs, torch_epochs
from benchmarks.peers.readers.tf_data import tf_data_epochs

_WARM_UP, _SECONDS = 3.0, 2.0
"""Seconds: tf.data takes the first to choose its parallelism; measured is an epoch at least."""

PEERS: dict[str, tuple[Callable[[Job], Epoch], str, int]] = {
    "ffcv": (ffcv_epochs, "ffcv", 2),
    "dali": (dali_epochs, "nvidia-dali-cuda120", 2),
    "torch": (torch_epochs, "torch", 2),
    "grain": (grain_epochs, "grain", 2),
    "spdl": (spdl_epochs, "spdl-core", 2),
    "tf.data": (tf_data_epochs, "tensorflow", 0),
    "tf.data-cache": (partial(tf_data_epochs, cache=True), "tensorflow", 0),
}
"""Each peer, the package whose version is shown, and the workers that were best on two cores."""


def main() -> None:
    """Measure one peer."""
    arguments = _parser().parse_args()
    if not (arguments.data / LABELS).exists():
        sys.exit(f"{arguments.data} is not a folder that benchmarks.peers.input_data has written")
    make, package, best = PEERS[arguments.peer]
    workers = best if arguments.workers is None else arguments.workers
    job = Job(arguments.data, arguments.storage, arguments.size, arguments.batch, workers)
    epoch = make(job)
    result = {
        "version": metadata.version(package),
        "workers": workers,
        **measure(epoch),
    }
    print(json.dumps(result), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers.readers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--data", type=Path, required=True, help="folder of the images")
    storages = "; ".join(f"{name}: {text}" for name, text in STORAGES.items())
    parser.add_argument("--storage", choices=STORAGES, required=True, help=storages)
    parser.add_argument("--size", type=int, default=224, help="side of the images, pixels")
    parser.add_argument("--batch", type=int, default=128, help="images per batch")
    parser.add_argument("--workers", type=int, help="default: the peer's best on two cores")
    return parser


def measure(epoch: Epoch) -> dict[str, float]:
    """Return images per second and CPU time per image, after at least one epoch to warm up."""
    end = time.perf_counter() + _WARM_UP
    while _images(epoch) and time.perf_counter() < end:
        pass
    images, start, cpu = 0, time.perf_counter(), cpu_seconds()
    while time.perf_counter() - start < _SECONDS:
        images += _images(epoch)
    seconds = time.perf_counter() - start
    used = cpu_seconds() - cpu
    return {"images_per_second": images / seconds, "cpu_microseconds": used / images * 1e6}


def _images(epoch: Epoch) -> int:
    return sum(len(labels) for _, labels in epoch())


if __name__ == "__main__":
    main()
