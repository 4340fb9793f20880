"""Measures this input pipeline, or the limit of this machine, on what peers read; prints JSON."""

from __future__ import annotations

import argparse
import functools
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.measuring.cpu import cpu_seconds
from benchmarks.measuring.limits import (
    decode_files,
    decode_jpeg,
    measure,
    on_every_core,
    process_per_core,
)
from benchmarks.peers.readers.job import MIN_AREA, Job, Samples
from components.transform.config import TransformConfig
from pipeline_def.data.original_crops import NUMBERS, OriginalDecoder
from pipeline_def.data.sampler import TrainingOrder

_LIMIT = "limit"
_WARM_UP, _SECONDS = 3.0, 2.0
# Windows of large images, of which a whole batch would take a part of these seconds.
_AT_ONCE = 8


def main() -> None:
    """Measure one contender."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.input_ours")
    parser.add_argument("contender")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--storage", required=True)
    for name in ("--size", "--batch"):
        parser.add_argument(name, type=int, required=True)
    arguments = parser.parse_args()
    job = Job(arguments.data, arguments.storage, arguments.size, arguments.batch, 0)
    is_limit = arguments.contender == _LIMIT
    print(json.dumps(_measure_limit(job) if is_limit else _measure(arguments.contender, job)))


def _measure(contender: str, job: Job) -> dict[str, float]:
    batches = _batches(contender, job)

    def take() -> int:
        next(batches)
        return job.batch

    measure(take, _WARM_UP)
    before, started = cpu_seconds(), time.perf_counter()
    rate = measure(take, _SECONDS)
    # The last batch ends later than that, large images much later.
    return _with_cpu(rate, cpu_seconds() - before, time.perf_counter() - started)


def _with_cpu(rate: float, used: float, seconds: float) -> dict[str, float]:
    """Return a rate, and the CPU time of an image in the seconds that were measured."""
    return {"images_per_second": rate, "cpu_microseconds": used / (rate * seconds) * 1e6}


def _batches(contender: str, job: Job) -> Iterator[Any]:
    """Return endless batches of this pipeline."""
    from benchmarks.ladder.rungs import FEATURE_SPEC
    from benchmarks.peers.input_data import describe
    from pipeline_def.config.input import InputConfig
    from pipeline_def.data.dataset import make_dataset
    from pipeline_def.data.shards import Shards

    how = contender.partition(", ")[2]
    dataset = make_dataset(
        Shards.of_pattern(f"{job.data}/Split-train/*"),
        config=describe(job.storage, job.size),
        feature_spec=FEATURE_SPEC,
        batch_size=job.batch,
        options=InputConfig(
            cache="decoded" if "memory" in how else "none",
            reader="streamed" if how == "streamed" else "indexed",
        ),
        order=_order(job),
    )
    return iter(dataset)


def _order(job: Job) -> TrainingOrder:
    return TrainingOrder(seed=1, flip=job.storage == "window", min_crop_area=MIN_AREA)


def _measure_limit(job: Job) -> dict[str, float]:
    """Measure every core, each in a process that does nothing else."""
    limit = functools.partial(_limit_of_core, job)
    with process_per_core() as pool:
        # Unmeasured: processes start at different times.
        on_every_core(pool, limit)
        before = cpu_seconds()
        rate = on_every_core(pool, limit)
        return _with_cpu(rate, cpu_seconds() - before, _SECONDS)


def _limit_of_core(job: Job) -> float:
    return measure(_limit_work(job), _SECONDS)


@functools.cache
def _limit_work(job: Job) -> Callable[[], int]:
    """Return what does the least that must be done for some images, and says for how many."""
    cv2.setNumThreads(0)
    samples = Samples(job)
    files = [samples.image(index).tobytes() for index in range(min(3200, len(samples)))]
    if job.storage == "window":
        config = TransformConfig(size=job.size, storage="originals")
        return functools.partial(_cut_windows, OriginalDecoder(config, _order(job)), files)
    out = np.empty((job.batch, job.size, job.size, 3), np.uint8)
    some = min(256, len(files))
    return lambda: decode_files(random.sample(files, some), out, decode_jpeg)


def _cut_windows(decoder: OriginalDecoder, files: list[bytes]) -> int:
    """Decode a few windows with the calls that training makes, and nothing around them."""
    numbers = np.random.default_rng().random((_AT_ONCE, NUMBERS), np.float32)
    decoder.decode(random.choices(files, k=_AT_ONCE), numbers)
    return _AT_ONCE


if __name__ == "__main__":
    main()
