"""Many steps in one call of the device: the loop over batches is part of the graph.

**How waiting is measured.** A step has waited for its input from the end of the step before until
its own batch was there, if that was later. Both moments are taken from the clock inside the graph.
A batch is there when the iterator has returned it. A step is over when a copy of its loss, made
after everything else that the step does, has reached the host: on an accelerator, operations have
"run" as soon as they are queued, and only a copy to the host waits for the queue. That copy of four
bytes is all there is of synchronisation; Python waits once a call. Reading goes on meanwhile.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy.typing as npt
import tensorflow as tf

Update = Callable[[Any, Any, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""From a replica's images, their labels and the number of the step to the replica's part of the
loss, and some of the images as the network saw them."""


class Steps(NamedTuple):
    """What came out of the steps of one call."""

    losses: list[float]
    """Of each step."""
    learning_rates: list[float]
    """Of each step."""
    waited: float
    """Seconds that they waited for input, all together."""
    images: npt.NDArray[Any]
    """The first images of the last step, as the network saw them."""


class _State(NamedTuple):
    """What one step of the loop hands to the next."""

    number: tf.Tensor
    """Of the next step, int64."""
    batch: Any
    """The next one, if it is read beside the step before; else nothing."""
    ready: tf.Tensor
    """When it was there, in seconds."""
    done: tf.Tensor
    """When the last step was over."""
    waited: tf.Tensor
    """Seconds, so far."""
    losses: tf.TensorArray
    rates: tf.TensorArray
    images: tf.Tensor


class StepLoop:
    """Runs any number of training steps in one call."""

    def __init__(self, update: Update, learning_rate: Callable[[], tf.Tensor]) -> None:
        """Run steps on every replica of the current strategy.

        Args:
            update: runs one of them on a replica.
            learning_rate: gives that of the next step.
        """
        self._strategy = tf.distribute.get_strategy()
        self._update, self._learning_rate = update, learning_rate
        # AutoGraph has nothing to convert here, and takes a second to find that out.
        self._loop = tf.function(self._run, autograph=False)
        # A function of its own, because a call is over when everything in it is.
        self._everywhere = tf.function(self._on_replicas, autograph=False)

    def __call__(self, batches: Any, first: int, count: int) -> Steps:
        """Run steps and wait for the last one.

        Args:
            batches: iterator over the distributed dataset; exactly `count` batches are taken.
            first: number of the first step.
            count: of steps, at least one.
        """
        numbers = (tf.constant(number, tf.int64) for number in (first, count))
        losses, rates, waited, images = self._loop(batches, *numbers)
        return Steps(losses.numpy().tolist(), rates.numpy().tolist(), float(waited), images.numpy())

    def _run(self, batches: Any, first: tf.Tensor, count: tf.Tensor) -> Any:
        # Next to each other, reading and computing hide each other's waits: to wake tf.data's
        # threads takes 0.6 ms, whatever is ready. A distributed iterator cannot be read in a
        # branch.
        ahead = isinstance(batches, tf.data.Iterator)
        end = first + count
        # Of the replicas' parts of the images, the first one's.
        images = tf.nest.flatten(batches.element_spec, expand_composites=True)[0]
        shown = tf.TensorSpec([None, *images.shape[1:]], images.dtype)
        started = _clock(first)
        batch, ready = _read(batches) if ahead else ((), started)
        state = _State(
            first, batch, ready, started, tf.zeros([], tf.float64), *_sinks(count, shown)
        )

        def body(*values: Any) -> Any:
            state = _State(*values)
            if ahead:
                now, ready = state.batch, state.ready
                more = state.number + 1 < end
                # The last one reads nothing, so that no batch is lost between calls.
                batch, following = tf.cond(more, lambda: _read(batches), lambda: (now, ready))
            else:
                (now, ready), batch, following = _read(batches), (), state.ready
            waited = state.waited + tf.maximum(ready - state.done, 0)
            return self._advance(state, now, first)._replace(
                batch=batch, ready=following, waited=waited
            )

        final = _State(
            *tf.while_loop(
                lambda number, *_: number < end,
                body,
                state,
                shape_invariants=_invariants(batches.element_spec if ahead else (), shown),
                parallel_iterations=1,
            )
        )
        return final.losses.stack(), final.rates.stack(), final.waited, final.images

    def _advance(self, state: _State, batch: Any, first: tf.Tensor) -> _State:
        """Run a step, and note when it was over."""
        at = tf.cast(state.number - first, tf.int32)
        rate = self._learning_rate()
        loss, images = self._everywhere(*batch, state.number)
        with tf.control_dependencies([loss]):
            # Not an identity, which grappler may move in front of what it is to wait for.
            loss = tf.raw_ops.Snapshot(input=loss)
        done = _clock(loss)
        return state._replace(
            number=state.number + 1,
            done=done,
            losses=state.losses.write(at, loss),
            rates=state.rates.write(at, rate),
            images=images,
        )

    def _on_replicas(self, *batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
        losses, images = self._strategy.run(self._update, batch)
        loss = self._strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
        return loss, self._strategy.experimental_local_results(images)[0]


def _sinks(count: tf.Tensor, shown: tf.TensorSpec) -> tuple[Any, Any, tf.Tensor]:
    """Return what losses, learning rates and images are written to."""
    size = tf.cast(count, tf.int32)
    losses, rates = (tf.TensorArray(tf.float32, size, element_shape=[]) for _ in range(2))
    return losses, rates, tf.zeros([0, *shown.shape[1:]], shown.dtype)


def _invariants(batch: Any, shown: tf.TensorSpec) -> _State:
    """Return shape and type of everything that the loop carries."""
    scalar = functools.partial(tf.TensorSpec, [])
    return _State(
        number=scalar(tf.int64),
        batch=batch,
        ready=scalar(tf.float64),
        done=scalar(tf.float64),
        waited=scalar(tf.float64),
        losses=scalar(tf.variant),
        rates=scalar(tf.variant),
        images=shown,
    )


def _read(batches: Any) -> tuple[Any, tf.Tensor]:
    """Take the next batch, and note when it was there."""
    batch = next(batches)
    return batch, _clock(*getattr(batch[-1], "values", [batch[-1]]))


def _clock(*tensors: tf.Tensor) -> tf.Tensor:
    """Return the time in seconds when the host has all of these tensors.

    Not by `tf.timestamp`, which is forbidden where operations have to be deterministic. Declared
    stateless, because a function's stateful operations run in the order of its text, and the end of
    a step must not be read after the next batch only because it is written below.
    """
    now = tf.numpy_function(_now, tensors, tf.float64, stateful=False)
    now.set_shape([])
    return now


def _now(*_: Any) -> float:
    return time.perf_counter()
