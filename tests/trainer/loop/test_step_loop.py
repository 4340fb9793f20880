import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.trainer.loop.step_loop import Pace, StepLoop

SECONDS = 0.02
"""Duration of a step."""


class SleepingStep:
    """A step with a fixed duration that returns the label of its batch as loss."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self.done: dict[int, float] = {}
        """Step → time when it was over."""

    def update(self, images: Any, labels: Any, number: Any) -> tf.Tensor:
        def work(label: Any) -> Any:
            time.sleep(self._seconds)
            self.done[int(label)] = time.perf_counter()
            return np.float32(label)

        loss = tf.numpy_function(work, [labels[0]], tf.float32)
        loss.set_shape([])
        return loss + tf.cast(number, tf.float32) / 10


def batches(seconds: float = 0.0, ready: dict[int, float] | None = None) -> Iterator[Any]:
    """Iterate over batches of one image with ascending labels, each read in `seconds`.

    Write the time when each was there into `ready`.
    """

    def read(number: Any) -> Any:
        time.sleep(seconds)
        if ready is not None:
            ready[int(number)] = time.perf_counter()
        return number

    def batch(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        label = tf.numpy_function(read, [number], tf.int64)
        label.set_shape([])
        return tf.zeros([1, 2, 2, 3], tf.uint8), label[None]

    return iter(tf.data.Dataset.counter().map(batch).prefetch(1))


class Distributed:
    """An iterator that is not tf.data's own, like that of a strategy."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.element_spec = inner, inner.element_spec

    def __next__(self) -> Any:
        return next(self.inner)


@pytest.mark.parametrize("wrap", [lambda source: source, Distributed])
def test_batches_are_taken_once_and_in_order(wrap: Callable[[Any], Any]) -> None:
    step, source = SleepingStep(0), wrap(batches())
    loop = StepLoop(step.update)
    losses = [loop(source, first, count)[0] for first, count in ((0, 1), (1, 4), (5, 2))]
    # The label, and a tenth of the number of the step.
    assert losses == pytest.approx([0, 4.4, 6.6])
    assert list(step.done) == [*range(7)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fraction", "wrap"), [(0.0, Distributed), (0.5, lambda source: source), (0.5, Distributed)]
)
def test_input_wait_fraction(fraction: float, wrap: Callable[[Any], Any]) -> None:
    # Reading and computing overlap: a step waits for the time by which reading takes longer.
    ready: dict[int, float] = {}
    source = wrap(batches(SECONDS / (1 - fraction) if fraction else 0.0, ready))
    step = SleepingStep()
    loop = StepLoop(step.update)
    loop(source, 0, 5)
    started = time.perf_counter()
    _, waited = loop(source, 5, 20)
    seconds = time.perf_counter() - started
    # On a busy machine everything takes longer, reading with its many threads more than the step:
    # the requested fraction is a lower limit.
    late = [max(0.0, ready[n] - step.done.get(n - 1, started)) for n in range(6, 25)]
    assert waited / seconds == pytest.approx(sum(late) / seconds, abs=0.15)
    assert waited / seconds > fraction - 0.3


def test_calls_become_about_a_second_long() -> None:
    pace = Pace()
    assert pace.steps(100_000) == 1
    pace.record(1, 30.0)  # with tracing
    counts = []
    for _ in range(5):
        counts.append(pace.steps(100_000))
        pace.record(counts[-1], counts[-1] * 0.001)
    assert counts == [1, 10, 100, 1000, 1000]
    assert pace.steps(3) == 3, "at most as many as are left"
    pace.record(1000, 5000.0)
    assert pace.steps(100_000) == 1, "steps longer than a second run one by one"
