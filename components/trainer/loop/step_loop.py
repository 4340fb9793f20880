"""Many steps in one call of the device: the loop over batches is part of the graph.

**How waiting is measured.** A step waits from the end of the step before until its own batch is
there. The clock is read inside the graph. A batch is there when the iterator has returned it. A
step is over when a copy of its loss, made after everything else in the step, has reached the host:
an accelerator reports operations as done once they are queued, and only a copy to the host waits
for the queue. Nothing but this copy of four bytes synchronizes a step; Python waits once per call,
and reading continues meanwhile.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

# Length of a call in seconds: progress still moves, and the millisecond per call is negligible.
_CALL_SECONDS = 1.0
_GROWTH = 10

Update = Callable[..., tf.Tensor]
"""From a replica's images, labels, the number of the step, and the rest of the batch, to the
replica's part of the loss."""


class Pace:
    """Chooses the number of steps per call; results do not depend on it."""

    def __init__(self) -> None:
        """Start with one step."""
        self._steps = 1
        self._calls = 0

    def steps(self, limit: int) -> int:
        """Return the number of steps for the next call, at most `limit`."""
        return min(self._steps, limit)

    def record(self, steps: int, seconds: float) -> None:
        """Adapt to the duration of the last call."""
        self._calls += 1
        # The first call is not representative, as it traces the graph.
        if self._calls > 1:
            fitting = int(steps * _CALL_SECONDS / max(seconds, 1e-6))
            self._steps = max(1, min(fitting, self._steps * _GROWTH))


class _State(NamedTuple):
    """The variables of the loop."""

    number: tf.Tensor
    """Number of the next step, int64."""
    batch: Any
    """The next batch if it is read ahead, else nothing."""
    ready: tf.Tensor
    """Time when `batch` was there, in seconds."""
    done: tf.Tensor
    """Time when the last step was over."""
    waited: tf.Tensor
    """Seconds so far."""
    loss: tf.Tensor
    """Of the last step."""


class StepLoop:
    """Runs any number of training steps in one call, on every replica of the current strategy."""

    def __init__(self, update: Update) -> None:
        """Take the step of a replica."""
        self._strategy, self._update = tf.distribute.get_strategy(), update
        # AutoGraph has nothing to convert here, and takes a second to find that out.
        self._loop = tf.function(self._run, autograph=False)
        # A function of its own, because a call is over when everything in it is.
        self._everywhere = tf.function(self._on_replicas, autograph=False)

    def __call__(self, batches: Any, first: int, count: int) -> tuple[float, float]:
        """Run `count` steps, at least one, and wait for the last one.

        Args:
            batches: iterator over the distributed dataset; exactly `count` batches are taken.
            first: number of the first step.
            count: number of steps.

        Returns:
            The loss of the last step, and the seconds that all have waited for input.
        """
        numbers = (tf.constant(number, tf.int64) for number in (first, count))
        loss, waited = self._loop(batches, *numbers)
        return float(loss), float(waited)

    def _run(self, batches: Any, first: tf.Tensor, count: tf.Tensor) -> Any:
        # Reading ahead hides the 0.6 ms that it takes to wake tf.data's threads, even with a batch
        # at hand. An iterator of a strategy cannot be read in a branch.
        ahead = isinstance(batches, tf.data.Iterator)
        end = first + count
        started = _clock(first)
        batch, ready = _read(batches) if ahead else ((), started)
        state = _State(first, batch, ready, started, tf.zeros([], tf.float64), tf.zeros([]))

        def body(*values: Any) -> Any:
            state = _State(*values)
            if ahead:
                now, ready = state.batch, state.ready
                more = state.number + 1 < end
                # The last step reads nothing, so that no batch is lost between calls.
                batch, following = tf.cond(more, lambda: _read(batches), lambda: (now, ready))
            else:
                (now, ready), batch, following = _read(batches), (), state.ready
            waited = state.waited + tf.maximum(ready - state.done, 0)
            loss = self._everywhere(*now, state.number)
            with tf.control_dependencies([loss]):
                # Not an identity, which Grappler may move before the operations to wait for.
                loss = tf.raw_ops.Snapshot(input=loss)
            return _State(state.number + 1, batch, following, _clock(loss), waited, loss)

        number, seconds = tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.float64)
        spec = batches.element_spec if ahead else ()
        final = _State(
            *tf.while_loop(
                lambda number, *_: number < end,
                body,
                state,
                shape_invariants=_State(number, spec, seconds, seconds, seconds, tf.TensorSpec([])),
                parallel_iterations=1,
            )
        )
        return final.loss, final.waited

    def _on_replicas(self, *batch: Any) -> tf.Tensor:
        losses = self._strategy.run(self._update, batch)
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


def _read(batches: Any) -> tuple[Any, tf.Tensor]:
    """Return the next batch, and the time when it was there."""
    batch = next(batches)
    return batch, _clock(*getattr(batch[-1], "values", [batch[-1]]))


def _clock(*tensors: tf.Tensor) -> tf.Tensor:
    """Return the time in seconds when the host has all of these tensors.

    `tf.timestamp` is forbidden where operations have to be deterministic. It is declared stateless
    because stateful operations run in the order of the code, and the end of a step must not be read
    after the next batch only because it is written below.
    """
    now = tf.numpy_function(lambda *_: time.perf_counter(), tensors, tf.float64, stateful=False)
    now.set_shape([])
    return now
