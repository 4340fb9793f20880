"""The limits of this machine: all cores decode, or copy, and do nothing else."""

import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt
import simplejpeg

from benchmarks.measuring.process import end_with_parent
from components.host.machine import available_cpus

DECODE_LIMIT = "limit: libjpeg-turbo on every core"
COPY_LIMIT = "limit: memory copied on every core"

Pixels = npt.NDArray[np.uint8]

# More than the processor's caches hold.
_COPIED_BYTES = 256 * 2**20
_BATCH = 128


def measure(work: Callable[[], int], seconds: float) -> float:
    """Repeat `work`, which returns how many images it took; return images per second."""
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        done += work()
    return done / (time.perf_counter() - started)


def process_per_core() -> ProcessPoolExecutor:
    """Return the processes for `on_every_core`."""
    return ProcessPoolExecutor(
        available_cpus(), mp_context=get_context("spawn"), initializer=end_with_parent
    )


def on_every_core(pool: ProcessPoolExecutor, limit: Callable[[], float]) -> float:
    """Return images per second of all cores together, with one process each."""
    running = [pool.submit(limit) for _ in range(available_cpus())]
    return sum(process.result() for process in running)


def decode_limit(paths: tuple[str, ...], size: int, seconds: float) -> float:
    """Decode canonical files from memory, and nothing else."""
    files, out = _in_memory(paths), np.empty((1, size, size, 3), np.uint8)
    return measure(lambda: decode_files(files, out, decode_jpeg), seconds)


@functools.cache
def _in_memory(paths: tuple[str, ...]) -> list[bytes]:
    return [Path(path).read_bytes() for path in paths]


def decode_files(
    files: Sequence[bytes], out: Pixels, decode: Callable[[bytes, Pixels], None]
) -> int:
    """Decode each of `files` into one of the images of `out`; return their number."""
    for number, file in enumerate(files):
        decode(file, out[number % len(out)])
    return len(files)


def decode_jpeg(file: bytes, out: Pixels) -> None:
    """Decode a file that has the size of `out`."""
    simplejpeg.decode_jpeg(file, "RGB", buffer=out)


def copy_limit(size: int, seconds: float) -> float:
    """Copy batches of pixels in memory, and nothing else."""
    pixels = _pixels(_BATCH * max(1, _COPIED_BYTES // (_BATCH * size**2 * 3)), size)
    out = np.empty_like(pixels[:_BATCH])
    return measure(lambda: copy_batches(pixels, out), seconds)


@functools.cache
def _pixels(count: int, size: int) -> Pixels:
    return np.ones((count, size, size, 3), np.uint8)


def copy_batches(pixels: Pixels, out: Pixels) -> int:
    """Copy `pixels` to `out`, batch by batch; return the number of images."""
    batch = len(out)
    for start in range(0, len(pixels) - batch + 1, batch):
        np.copyto(out, pixels[start : start + batch])
    return len(pixels) // batch * batch
