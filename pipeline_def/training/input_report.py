"""Whether training was held up by its input, and what to change then."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from components.contract.machine import available_memory, gib
from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.data.cache import fits_in_memory, pixel_bytes
from pipeline_def.data.shards import Shards
from pipeline_def.training.loop import RATE, WAIT_SHARE

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class InputReport:
    """How the input pipeline kept up with training."""

    images_per_second: float
    """Trained on; the median of the epochs, without the first if there are more."""
    input_wait_share: float
    """Share of the time of training steps spent waiting for input; likewise."""
    cache: str
    """The one that was used."""
    advice: str | None
    """What to change, if the share is above `input.max_wait`."""


def report_input(
    history: Mapping[str, Sequence[float]],
    options: InputConfig,
    shards: Shards,
    config: TransformConfig,
) -> InputReport:
    """Sum a training up, and log the advice if there is one.

    Args:
        history: metric → its value in every epoch, as `TrainingLoop.fit` returns it.
        options: with `cache` resolved.
        shards: that were trained on.
        config: of their images.
    """
    rate, share = (
        statistics.median(history[name][1:] or history[name]) for name in (RATE, WAIT_SHARE)
    )
    advice = _advise(options, shards, config) if share > options.max_wait else None
    if advice:
        _LOGGER.warning("Training waited %.0f %% of its time for input: %s", share * 100, advice)
    return InputReport(rate, share, options.cache, advice)


def _advise(options: InputConfig, shards: Shards, config: TransformConfig) -> str:
    pixels = pixel_bytes(shards, config)
    if options.cache in ("decoded", "file"):
        change = "pixels are cached already; a larger model or batch would use the time"
    elif fits_in_memory(pixels, available_memory()):
        change = f"set input.cache to decoded, which takes {gib(pixels)} of memory"
    elif not shards.local:
        change = "read from a local disk, or raise input.interleave"
    elif config.storage != "raw":
        change = f"set input.cache to file or transform.storage to raw; either takes {gib(pixels)}"
    else:
        change = "put the shards on a faster disk"
    return f"{change}. `uv run -m benchmarks.input_pipeline --data DIR` measures what helps."
