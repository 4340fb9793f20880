"""Measures the rungs of the input benchmark, in a process of its own; prints JSON.

TensorFlow reads the address of a bucket's server when it is imported, hence the process.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ladder_data import Material
from benchmarks.limits import (
    COPY_LIMIT,
    DECODE_LIMIT,
    copy_limit,
    decode_limit,
    on_every_core,
    process_per_core,
)
from benchmarks.measuring.progress import Progress, say
from components.contract.errors import ConfigurationError
from components.contract.machine import available_cpus

# An epoch of pixels in memory takes milliseconds, which no clock can be asked about; one by one
# from a bucket, it would take minutes.
_LEAST_SECONDS, _MOST_SECONDS = 1.0, 10.0

# Batches that were made before the clock started, by whatever reads ahead.
_BUFFERED = 4

Batches = Iterator[tuple[Any, Any]]


def main() -> None:
    """Measure what the only argument, JSON, asks for."""
    options = json.loads(sys.argv[1])
    material = Material.load(options["folder"], options["root"])
    local = Material.load(options["folder"], options["folder"])
    rungs = choose(options["rungs"], remote="://" in material.root)
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
        "limits": {name: rates[name] for name in (DECODE_LIMIT, COPY_LIMIT)},
        "accelerator_images_per_second": target,
        **{key: options[key] for key in ("batch", "epochs", "repeats")},
        "images": material.images,
        "size": material.size,
        "cores": available_cpus(),
    }
    print(json.dumps(results))


def choose(words: str | None, *, remote: bool) -> list[Any]:
    """Return the rungs whose name has one of `words`, separated by commas, in it.

    Raises:
        ConfigurationError: none has.
    """
    from benchmarks.ladder import REMOTE_RUNGS, RUNGS

    rungs = REMOTE_RUNGS if remote else RUNGS
    wanted = words.split(",") if words else [""]
    if chosen := [rung for rung in rungs if any(word in rung.name for word in wanted)]:
        return chosen
    names = ", ".join(rung.name for rung in rungs)
    raise ConfigurationError(f"no rung has {words} in its name; there are: {names}")


def _start(rung: Any, material: Material, batch: int) -> tuple[Batches, float]:
    """Return the batches of a rung, and the seconds until the first one was there."""
    say(f"starting: {rung.name}")
    started = time.perf_counter()
    batches = iter(rung.build(material, batch))
    next(batches)
    return batches, time.perf_counter() - started


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

    from components.images.canonical import decode

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
    files = tuple(material.files("files")[: material.different])
    limits: dict[str, Callable[[], float]] = {
        DECODE_LIMIT: functools.partial(decode_limit, files, material.size),
        COPY_LIMIT: functools.partial(copy_limit, material.size),
    }
    with process_per_core() as pool:
        for name, limit in limits.items():
            turns[name] = functools.partial(on_every_core, pool, limit)
            turns[name]()
        progress = Progress(options["repeats"] * len(turns))
        for _ in range(options["repeats"]):
            for name, turn in turns.items():
                rate = turn()
                rates.setdefault(name, []).append(rate)
                progress.report(f"{name}: {rate:,.0f} images/s")
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


if __name__ == "__main__":
    main()
