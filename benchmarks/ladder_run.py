"""Measures the rungs of the input benchmark, in a process of its own; prints JSON.

TensorFlow reads the address of a bucket's server when it is imported, hence the process.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

from benchmarks.ladder_data import Material

# An epoch of pixels in memory takes milliseconds, which no clock can be asked about; one by one
# from a bucket, it would take minutes.
_LEAST_SECONDS, _MOST_SECONDS = 1.0, 10.0

# Batches that were made before the clock started, by whatever reads ahead.
_BUFFERED = 4

# More than the caches of a processor hold.
_COPIED_BYTES = 256 * 2**20

Batches = Iterator[tuple[Any, Any]]


def main() -> None:
    """Measure what the only argument, JSON, asks for."""
    options = json.loads(sys.argv[1])
    material = Material.load(options["folder"], options["root"])
    local = Material.load(options["folder"], options["folder"])
    rungs = _chosen(options["rungs"], remote="://" in material.root)
    started = {rung.name: _start(rung, material, options["batch"]) for rung in rungs}
    checked = _check_pixels(rungs, started, local, options["batch"])
    steps = options["epochs"] * material.images // options["batch"]
    rates = _measure_all(started, steps, options, local)
    target = options["target"] or 0.8 * _reference(rates)
    waits = {
        name: _wait_share(batches, steps, options["batch"], target)
        for name, (batches, _) in started.items()
    }
    facts = {rung.name: {"change": rung.change, "kind": rung.kind} for rung in rungs}
    results = {
        "rungs": [
            {
                "name": name,
                **facts[name],
                "images_per_second": rates[name],
                "wait_share": waits[name],
                "first_batch_seconds": started[name][1],
                "pixels": checked[name],
            }
            for name in started
        ],
        "limits": {name: rates[name] for name in _LIMITS},
        "accelerator_images_per_second": target,
        **{key: options[key] for key in ("batch", "epochs", "repeats")},
        "images": material.images,
        "size": material.size,
        "cores": len(os.sched_getaffinity(0)),
    }
    print(json.dumps(results))


def _chosen(words: str | None, *, remote: bool) -> list[Any]:
    from benchmarks.ladder import REMOTE_RUNGS, RUNGS

    rungs = REMOTE_RUNGS if remote else RUNGS
    wanted = words.split(",") if words else [""]
    return [rung for rung in rungs if any(word in rung.name for word in wanted)]


def _start(rung: Any, material: Material, batch: int) -> tuple[Batches, float]:
    """Return the batches of a rung, and the seconds until the first one was there."""
    _say(f"starting: {rung.name}")
    started = time.perf_counter()
    batches = iter(rung.build(material, batch))
    next(batches)
    return batches, time.perf_counter() - started


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _check_pixels(
    rungs: list[Any], started: dict[str, tuple[Batches, float]], material: Material, batch: int
) -> dict[str, str]:
    """Compare an epoch's images with the decoded canonical files.

    Raises:
        ValueError: a rung that should give the same pixels gives others.
    """
    expected = _hashes(_canonical_pixels(material))
    found = {}
    for rung in rungs:
        batches, _ = started[rung.name]
        if not rung.same_pixels:
            found[rung.name] = "others: no JPEG of their size was made in between"
            continue
        count = min(material.images, _few_if_slow(batches) * batch)
        images = _take(batches, count // batch)
        if not _hashes(images) <= expected:
            raise ValueError(f"{rung.name} gives other pixels than the canonical files")
        found[rung.name] = f"the same, {count} images compared"
    return found


def _few_if_slow(batches: Batches) -> int:
    """Return how many batches a few seconds give."""
    started = time.perf_counter()
    next(batches)
    return max(1, int(5 / (time.perf_counter() - started + 1e-9)))


def _take(batches: Batches, steps: int) -> Iterator[Any]:
    for _ in range(steps):
        yield from next(batches)[0].numpy()


def _hashes(images: Iterator[Any]) -> set[bytes]:
    return {hashlib.sha256(image.tobytes()).digest() for image in images}


def _canonical_pixels(material: Material) -> Iterator[Any]:
    import tensorflow as tf

    from pipeline_def.image import decode

    for path in material.files("files")[: material.different]:
        yield decode(tf.constant([Path(path).read_bytes()]), material.config()).numpy()[0]


def _measure_all(
    started: dict[str, tuple[Batches, float]],
    steps: int,
    options: dict[str, Any],
    material: Material,
) -> dict[str, list[float]]:
    """Return images per second of every rung and limit, by round; they take turns."""
    batch = options["batch"]
    turns: dict[str, Callable[[], float]] = {
        name: functools.partial(_rate, batches, steps, batch)
        for name, (batches, _) in started.items()
    }
    rates: dict[str, list[float]] = {}
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        for name, limit in _LIMITS.items():
            turns[name] = functools.partial(_limit, pool, limit, material, cores)
            turns[name]()
        for number in range(options["repeats"]):
            _say(f"round {number + 1} of {options['repeats']}")
            for name, turn in turns.items():
                rates.setdefault(name, []).append(turn())
    return rates


def _rate(batches: Batches, steps: int, batch: int) -> float:
    """Return images per second of `steps` batches, or as many as `_is_over` allows."""
    _drain(batches)
    done, started = 0, time.perf_counter()
    while not _is_over(done, steps, time.perf_counter() - started):
        next(batches)
        done += 1
    return done * batch / (time.perf_counter() - started)


def _drain(batches: Batches) -> None:
    """Take what was made ahead; a rung that needs seconds for a batch makes none ahead."""
    started = time.perf_counter()
    for _ in range(_BUFFERED):
        next(batches)
        if time.perf_counter() - started > _LEAST_SECONDS:
            break


def _is_over(done: int, steps: int, seconds: float) -> bool:
    return seconds > _MOST_SECONDS or (done >= steps and seconds > _LEAST_SECONDS)


def _wait_share(batches: Batches, steps: int, batch: int, rate: float) -> float:
    """Return the share of its time that an accelerator which takes `rate` images/s waits."""
    pause = batch / rate
    _drain(batches)
    done, waited, started = 0, 0.0, time.perf_counter()
    while not _is_over(done, steps, time.perf_counter() - started):
        asked = time.perf_counter()
        next(batches)
        waited += time.perf_counter() - asked
        # Sleeping is what the processor does while an accelerator works.
        time.sleep(pause)
        done += 1
    return waited / (time.perf_counter() - started)


def _reference(rates: dict[str, list[float]]) -> float:
    """Return what our own reader gives without a cache."""
    for name in ("reader indexed", "+ prefetch: reader streamed", *rates):
        if name in rates:
            return float(np.median(rates[name]))
    raise ValueError("nothing was measured")


def _limit(pool: ProcessPoolExecutor, limit: Any, material: Material, cores: int) -> float:
    """Return images per second of all cores together, a process each."""
    return float(sum(pool.map(limit, [material] * cores)))


def _decode_limit(material: Material, seconds: float = 1.0) -> float:
    """Decode canonical files that lie in memory, and nothing else."""
    files = _in_memory(tuple(material.files("files")[: material.different]))
    image = np.empty((material.size, material.size, 3), np.uint8)
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        for file in files:
            simplejpeg.decode_jpeg(file, "RGB", buffer=image)
        done += len(files)
    return done / (time.perf_counter() - started)


@functools.cache
def _in_memory(paths: tuple[str, ...]) -> list[bytes]:
    return [Path(path).read_bytes() for path in paths]


def _copy_limit(material: Material, seconds: float = 1.0) -> float:
    """Copy batches of pixels that lie in memory, and nothing else."""
    batch = 128
    count = batch * max(1, _COPIED_BYTES // (batch * material.size**2 * 3))
    pixels = _pixels(count, material.size)
    target = np.empty_like(pixels[:batch])
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        for start in range(0, count - batch + 1, batch):
            np.copyto(target, pixels[start : start + batch])
            done += batch
    return done / (time.perf_counter() - started)


@functools.cache
def _pixels(count: int, size: int) -> Any:
    return np.ones((count, size, size, 3), np.uint8)


_LIMITS = {
    "limit: libjpeg-turbo on every core": _decode_limit,
    "limit: memory copied on every core": _copy_limit,
}

if __name__ == "__main__":
    main()
