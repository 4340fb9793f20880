"""Measures a rung of the ladder in its own process, which is stopped while others are measured.

In one process a rung that is not measured goes on: it fills its buffers, and its threads share the
pools of TensorFlow and the lock of the interpreter with the rung whose turn it is.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.process import MeasurementError, end_with_parent

if TYPE_CHECKING:
    # It loads TensorFlow.
    from benchmarks.ladder.data import Material

_CAN_STOP = sys.platform == "linux"

# An epoch takes minutes one by one from a bucket.
_MOST_SECONDS = 10.0

# Batches that a reader may have prefetched before the clock started.
_BUFFERED = 4

Answers = Mapping[str, Callable[..., Any]]
"""Name of a request → the function that serves it."""

Batches = Iterator[tuple[Any, Any]]


class RungProcess:
    """Serves requests in a forked process, which is stopped between them.

    TensorFlow may be imported before, but must not have run: its threads would be missing.
    """

    def __init__(self, name: str, prepare: Callable[[], Answers]) -> None:
        """Fork; the process calls `prepare` before its first request."""
        context = get_context("fork")
        self._name = name
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, prepare))
        self._process.start()
        theirs.close()

    def ask(self, question: str, *arguments: Any) -> Any:
        """Resume the process until it has served a request.

        Raises:
            MeasurementError: it has failed.
        """
        self._send(signal.SIGCONT)
        try:
            self._pipe.send((question, arguments))
            answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise MeasurementError(f"the process of {self._name} has ended") from error
        self._send(signal.SIGSTOP)
        if isinstance(answer, Exception):
            raise MeasurementError(f"{self._name}: {answer}") from answer
        return answer

    def end(self) -> None:
        """Kill the process; a stopped one takes no other signal."""
        self._process.kill()
        self._process.join()

    def _send(self, number: signal.Signals) -> None:
        if _CAN_STOP and self._process.pid and self._process.is_alive():
            os.kill(self._process.pid, number)


def _serve(pipe: Connection, prepare: Callable[[], Answers]) -> None:
    """Serve requests until the other end is closed."""
    # A stopped process would not notice it.
    end_with_parent()
    answers: Answers = {}
    while True:
        try:
            question, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answers = answers or prepare()
            answer = answers[question](*arguments)
        except Exception as error:
            answer = MeasurementError(f"{type(error).__name__}: {error}")
        pipe.send(answer)


@dataclass(frozen=True)
class RungMeasurement:
    """How to measure a rung."""

    rung: Any
    material: Material
    local: Material
    """The same images, in a local folder."""
    batch: int
    seconds: float
    """Least time of a measurement: an epoch takes milliseconds from memory, too little to time."""

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
            "rate": lambda steps: self._rate(batches, steps),
            "wait share": lambda steps, rate: self._wait_share(batches, steps, rate),
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

    def _rate(self, batches: Batches, steps: int) -> tuple[float, float]:
        """Return images per second and CPU microseconds per image, of about `steps` batches."""
        _drain(batches)
        done, started, cpu = 0, time.perf_counter(), time.process_time()
        while not self._is_over(done, steps, time.perf_counter() - started):
            next(batches)
            done += 1
        images, used = done * self.batch, time.process_time() - cpu
        return images / (time.perf_counter() - started), used / images * 1e6

    def _wait_share(self, batches: Batches, steps: int, rate: float) -> float:
        """Return the fraction of the time that an accelerator at `rate` images/s waits."""
        pause = self.batch / rate
        _drain(batches)
        done, waited, started = 0, 0.0, time.perf_counter()
        while not self._is_over(done, steps, time.perf_counter() - started):
            asked = time.perf_counter()
            next(batches)
            waited += time.perf_counter() - asked
            # While an accelerator works, the processor sleeps.
            time.sleep(pause)
            done += 1
        return waited / (time.perf_counter() - started)

    def _is_over(self, done: int, steps: int, seconds: float) -> bool:
        return seconds > _MOST_SECONDS or (done >= steps and seconds > self.seconds)


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


def _drain(batches: Batches) -> None:
    """Take prefetched batches; a rung that needs seconds per batch has none."""
    started = time.perf_counter()
    for _ in range(_BUFFERED):
        next(batches)
        if time.perf_counter() - started > 1:
            break
