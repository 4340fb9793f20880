"""Measures a rung of the ladder, or a limit of this machine, in a fresh process; prints JSON.

In one process a rung that is not measured would go on: it fills its buffers, and its threads share
the pools of TensorFlow and the lock of the interpreter with the rung whose turn it is.
"""

import functools
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.ladder.data import Material
from benchmarks.ladder.rungs import RUNGS, Rung
from benchmarks.measuring.limits import (
    COPY_LIMIT,
    DECODE_LIMIT,
    copy_limit,
    decode_limit,
    on_every_core,
    process_per_core,
)

# An epoch takes minutes one by one from a bucket.
_MOST_SECONDS = 10.0

# Batches that a reader may have prefetched before the clock started.
_BUFFERED = 4

Batches = Iterator[tuple[Any, Any]]


def main() -> None:
    """Measure the task in the only argument, which is JSON."""
    task = json.loads(sys.argv[1])
    material = Material.load(task["folder"], task["root"])
    rung = next((rung for rung in RUNGS if rung.name == task["name"]), None)
    print(json.dumps(_measure_rung(rung, material, task) if rung else _measure_limit(task)))


def _measure_limit(task: dict[str, Any]) -> dict[str, float]:
    material = Material.load(task["folder"], task["folder"])
    files = tuple(material.files("files")[: material.different])
    limits: dict[str, Callable[[], float]] = {
        DECODE_LIMIT: functools.partial(decode_limit, files, material.size, task["seconds"]),
        COPY_LIMIT: functools.partial(copy_limit, material.size, task["seconds"]),
    }
    with process_per_core() as pool:
        on_every_core(pool, limits[task["name"]])
        return {"images_per_second": on_every_core(pool, limits[task["name"]])}


def _measure_rung(rung: Rung, material: Material, task: dict[str, Any]) -> dict[str, Any]:
    """Measure the first batch, the rate, and how long an accelerator at `target` images/s waits."""
    batch = task["batch"]
    started = time.perf_counter()
    batches = iter(rung.build(material, batch))
    next(batches)
    first = time.perf_counter() - started
    pixels = _check_pixels(rung, batches, material, batch)

    def is_over(done: int, seconds: float) -> bool:
        steps = task["epochs"] * material.images // batch
        return seconds > _MOST_SECONDS or (done >= steps and seconds > task["seconds"])

    rate, used = _rate(batches, batch, is_over)
    return {
        "first_batch_seconds": first,
        "pixels": pixels,
        "images_per_second": rate,
        "cpu_microseconds": used,
        "wait_share": _wait_share(batches, batch / (task["target"] or rate), is_over),
    }


def _check_pixels(rung: Rung, batches: Batches, material: Material, batch: int) -> str:
    """Compare an epoch's images with the decoded canonical files.

    Raises:
        ValueError: a rung that should give the same pixels gives others.
    """
    if not rung.same_pixels:
        return "others: no JPEG of their size was made in between"
    started = time.perf_counter()
    next(batches)
    few = int(5 / (time.perf_counter() - started + 1e-9))
    steps = max(1, min(few, material.images // batch))
    digests = {
        hashlib.sha256(image.tobytes()).hexdigest()
        for _ in range(steps)
        for image in next(batches)[0].numpy()
    }
    if not digests <= {*material.digests}:
        raise ValueError("its pixels differ from the canonical files")
    return f"the same, {steps * batch} images compared"


def _rate(
    batches: Batches, batch: int, is_over: Callable[[int, float], bool]
) -> tuple[float, float]:
    """Return images per second and CPU microseconds per image."""
    _drain(batches)
    done, started, cpu = 0, time.perf_counter(), time.process_time()
    while not is_over(done, time.perf_counter() - started):
        next(batches)
        done += 1
    images, used = done * batch, time.process_time() - cpu
    return images / (time.perf_counter() - started), used / images * 1e6


def _wait_share(batches: Batches, pause: float, is_over: Callable[[int, float], bool]) -> float:
    """Return the fraction of the time that an accelerator waits which takes `pause` s a batch."""
    _drain(batches)
    done, waited, started = 0, 0.0, time.perf_counter()
    while not is_over(done, time.perf_counter() - started):
        asked = time.perf_counter()
        next(batches)
        waited += time.perf_counter() - asked
        # While an accelerator works, the processor sleeps.
        time.sleep(pause)
        done += 1
    return waited / (time.perf_counter() - started)


def _drain(batches: Batches) -> None:
    """Take prefetched batches; a rung that needs seconds per batch has none."""
    started = time.perf_counter()
    for _ in range(_BUFFERED):
        next(batches)
        if time.perf_counter() - started > 1:
            break


if __name__ == "__main__":
    main()
