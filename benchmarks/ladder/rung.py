"""Measures one rung in its own process; see `process`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ladder.data import Material
from benchmarks.ladder.process import Answers

# An epoch takes milliseconds from memory, too little to time, and minutes one by one from a bucket.
_LEAST_SECONDS, _MOST_SECONDS = 1.0, 10.0

# Batches that a reader may have prefetched before the clock started.
_BUFFERED = 4

# Batches per profile.
_PROFILED = 10

Batches = Iterator[tuple[Any, Any]]


@dataclass(frozen=True)
class RungMeasurement:
    """How to measure a rung."""

    rung: Any
    material: Material
    local: Material
    """The same images, in a local folder."""
    batch: int

    def prepare(self) -> Answers:
        """Start TensorFlow and the rung; return the requests it serves."""
        import tensorflow as tf

        tf.constant(0)
        started = time.perf_counter()
        batches = iter(self.rung.build(self.material, self.batch))
        next(batches)
        seconds = time.perf_counter() - started
        return {
            "first batch": lambda: seconds,
            "expected": lambda: _hashes(_canonical_pixels(self.local)),
            "pixels": lambda expected: self._check_pixels(batches, expected),
            "rate": lambda steps: _rate(batches, steps, self.batch),
            "wait share": lambda steps, rate: _wait_share(batches, steps, self.batch, rate),
            "profile": lambda folder: _profile(batches, folder),
        }

    def _check_pixels(self, batches: Batches, expected: set[bytes]) -> str:
        """Compare an epoch's images with the decoded canonical files.

        Raises:
            ValueError: a rung that should give the same pixels gives others.
        """
        if not self.rung.same_pixels:
            return "others: no JPEG of their size was made in between"
        count = min(self.material.images, _few_if_slow(batches) * self.batch)
        if not _hashes(_take(batches, count // self.batch)) <= expected:
            raise ValueError("its pixels differ from the canonical files")
        return f"the same, {count} images compared"


def _few_if_slow(batches: Batches) -> int:
    """Return how many batches the rung gives in a few seconds."""
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


def _rate(batches: Batches, steps: int, batch: int) -> tuple[float, float]:
    """Return images per second of `steps` batches, or as many as `_is_over` allows.

    And the CPU time of an image, microseconds.
    """
    _drain(batches)
    done, started, cpu = 0, time.perf_counter(), time.process_time()
    while not _is_over(done, steps, time.perf_counter() - started):
        next(batches)
        done += 1
    images, used = done * batch, time.process_time() - cpu
    return images / (time.perf_counter() - started), used / images * 1e6


def _drain(batches: Batches) -> None:
    """Take prefetched batches; a rung that needs seconds per batch has none."""
    started = time.perf_counter()
    for _ in range(_BUFFERED):
        next(batches)
        if time.perf_counter() - started > _LEAST_SECONDS:
            break


def _is_over(done: int, steps: int, seconds: float) -> bool:
    return seconds > _MOST_SECONDS or (done >= steps and seconds > _LEAST_SECONDS)


def _wait_share(batches: Batches, steps: int, batch: int, rate: float) -> float:
    """Return the fraction of the time that an accelerator at `rate` images/s waits."""
    pause = batch / rate
    _drain(batches)
    done, waited, started = 0, 0.0, time.perf_counter()
    while not _is_over(done, steps, time.perf_counter() - started):
        asked = time.perf_counter()
        next(batches)
        waited += time.perf_counter() - asked
        # While an accelerator works, the processor sleeps.
        time.sleep(pause)
        done += 1
    return waited / (time.perf_counter() - started)


def _profile(batches: Batches, folder: str) -> None:
    """Record a profile, but not while the rate is measured, because it costs time."""
    import tensorflow as tf

    _drain(batches)
    with tf.profiler.experimental.Profile(folder):
        for _ in range(_PROFILED):
            next(batches)
