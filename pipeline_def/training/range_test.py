"""The learning rate range test (Smith, 2017): https://arxiv.org/abs/1506.01186.

The learning rate rises from step to step until the loss explodes. A tenth of the rate at which the
smoothed loss was lowest is a good peak for a training.
"""

import dataclasses
import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras

from components.host.progress import report_progress
from pipeline_def.training.loop import ReadBatches
from pipeline_def.training.steps.step import Step
from pipeline_def.training.steps.step_loop import StepLoop

_LOGGER = logging.getLogger(__name__)

_LOWEST, _HIGHEST, _STEPS = 1e-5, 10.0, 120
# Steps of a call, after which the test may end.
_CALL = 10
_SMOOTHING = 0.9
# The test ends when the smoothed loss is this many times the lowest.
_EXPLODED = 4.0
_MARGIN = 10.0


@dataclass(frozen=True)
class RangeTest:
    """The loss while the learning rate rose."""

    rates: list[float]
    losses: list[float]
    """Smoothed; as long as `rates`."""
    used: float
    """The learning rate of the training."""
    lowest: float | None
    """Rate at which the loss was lowest; None if it was never finite."""
    suggested: float | None
    text: str
    """What the test shows, in a sentence."""


class Ramp(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises by the same factor in every step."""

    def __call__(self, step: Any) -> tf.Tensor:
        """Return the learning rate, float32, of update number `step`, from 0 on."""
        done = tf.cast(step, tf.float32) / (_STEPS - 1)
        return _LOWEST * (_HIGHEST / _LOWEST) ** done


def run_range_test(make_step: Callable[..., Step], read: ReadBatches) -> RangeTest:
    """Run the test, and leave the model as it was.

    Args:
        make_step: makes the step of the training, with another `schedule`.
        read: returns the training batches.
    """
    strategy = tf.distribute.get_strategy()
    step = make_step(schedule=Ramp())
    variables = list(step.model.variables)
    before = [variable.numpy() for variable in variables]
    loop = StepLoop(step.update, lambda: step.schedule(step.optimizer.iterations))
    batches = iter(strategy.distribute_datasets_from_function(functools.partial(read, 0)))
    rates: list[float] = []
    losses: list[float] = []
    while len(losses) < _STEPS and not _has_exploded(losses):
        steps = loop(batches, len(losses), min(_CALL, _STEPS - len(losses)))
        rates += steps.learning_rates
        losses += steps.losses
        note = f"range test: learning rate {rates[-1]:.2g}"
        report_progress(done=len(losses), total=_STEPS, unit="steps", note=note)
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    found = summarize(rates, losses, used=step.config.learning_rate)
    _LOGGER.warning("%s", found.text)
    return found


def summarize(rates: list[float], losses: list[float], *, used: float) -> RangeTest:
    """Smooth the losses, end where they explode, and suggest a learning rate."""
    smoothed = _smooth(losses)
    end = next((n for n in range(len(losses)) if _has_exploded(losses[: n + 1])), len(losses))
    kept = [number for number in range(end) if math.isfinite(smoothed[number])]
    facts = RangeTest([rates[n] for n in kept], [smoothed[n] for n in kept], used, None, None, "")
    if not kept:
        text = f"The loss is not finite even at a learning rate of {rates[0]:g}."
        return dataclasses.replace(facts, text=text)
    lowest = rates[min(kept, key=smoothed.__getitem__)]
    suggested = float(f"{lowest / _MARGIN:.1g}")
    text = (
        f"Learning rate range test: the loss was lowest at {lowest:.2g}, and a tenth of that is "
        f"safe: try --training.learning_rate {suggested:g}; this training used {used:g}."
    )
    return dataclasses.replace(facts, lowest=lowest, suggested=suggested, text=text)


def _smooth(losses: list[float]) -> list[float]:
    """Return the exponential moving average, corrected for its start from zero."""
    smoothed, mean = [], 0.0
    for number, loss in enumerate(losses, start=1):
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * loss
        smoothed.append(mean / (1 - _SMOOTHING**number))
    return smoothed


def _has_exploded(losses: list[float]) -> bool:
    smoothed = _smooth(losses)
    return bool(losses) and not smoothed[-1] <= _EXPLODED * min(smoothed)
