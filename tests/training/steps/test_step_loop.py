from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pipeline_def.training.steps.step_loop import StepLoop, Steps

SECONDS = 0.02
"""That a step takes."""


class SleepingStep:
    """A step that takes as long as it is told, and hands out what it was given."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self.done: dict[int, float] = {}
        """Step → when it was over."""

    def update(self, images: Any, labels: Any, number: Any) -> tuple[tf.Tensor, tf.Tensor]:
        def work(label: Any) -> Any:
            time.sleep(self._seconds)
            self.done[int(label)] = time.perf_counter()
            return np.float32(label)

        loss = tf.numpy_function(work, [labels[0]], tf.float32)
        loss.set_shape([])
        return loss + tf.cast(number, tf.float32) / 10, images


def batches(seconds: float = 0.0, ready: dict[int, float] | None = None) -> Iterator[Any]:
    """Iterate over batches of one image, whose label counts, each of which takes so long.

    Write into `ready` when each one was there.
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
    """What hides that an iterator is tf.data's own, as a strategy's iterator does."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.element_spec = inner, inner.element_spec

    def __next__(self) -> Any:
        return next(self.inner)


def run(step: SleepingStep, source: Any, *counts: int) -> list[Steps]:
    loop = StepLoop(step.update, lambda: tf.constant(0.5))
    first, results = 0, []
    for count in counts:
        results.append(loop(source, first, count))
        first += count
    return results


@pytest.mark.parametrize("wrap", [lambda source: source, Distributed])
def test_every_batch_is_taken_once_and_in_its_order(wrap: Callable[[Any], Any]) -> None:
    results = run(SleepingStep(0), wrap(batches()), 1, 4, 2)
    losses = np.concatenate([steps.losses for steps in results])
    # Number of the batch, and a tenth of the step's.
    np.testing.assert_allclose(losses, np.arange(7) * 1.1, rtol=1e-6)
    assert [len(steps.learning_rates) for steps in results] == [1, 4, 2]
    assert results[-1].images.shape == (1, 2, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("wrap", [lambda source: source, Distributed])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_the_share_of_time_spent_waiting_is_true(share: float, wrap: Callable[[Any], Any]) -> None:
    # Reading and computing go on at the same time: what is waited for is what reading takes longer.
    ready: dict[int, float] = {}
    source = wrap(batches(SECONDS / (1 - share) if share else 0.0, ready))
    step = SleepingStep()
    loop = StepLoop(step.update, lambda: tf.constant(0.5))
    loop(source, 0, 5)
    started = time.perf_counter()
    steps = loop(source, 5, 40)
    seconds = time.perf_counter() - started
    # On a busy machine everything takes longer than it was told to, reading with its many threads
    # more than the step: what was asked for is a lower limit.
    late = [max(0.0, ready[n] - step.done.get(n - 1, started)) for n in range(6, 45)]
    assert steps.waited / seconds == pytest.approx(sum(late) / seconds, abs=0.07)
    assert steps.waited / seconds > share - 0.3
