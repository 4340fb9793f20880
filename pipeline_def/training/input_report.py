"""Whether training was held up by its input, and what to change then."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from components.contract.machine import available_memory, gib
from components.contract.model_files import INPUT_WAIT_FRACTION, RATE
from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.data.cache import fits_in_memory, pixel_bytes
from pipeline_def.data.shards import Shards

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class InputReport:
    """How the input pipeline kept up with training."""

    images_per_second: float
    """Images trained on per second; the median epoch, the first one left out if there are more."""
    input_wait_fraction: float
    """Fraction of the time of training steps spent waiting for input; likewise."""
    cache: str
    """Kind of cache that was used."""
    advice: str | None
    """What to change, if that fraction is above `input.max_wait`."""


def report_input(
    history: Mapping[str, Sequence[float]],
    options: InputConfig,
    shards: Shards,
    config: TransformConfig,
) -> InputReport:
    """Summarise how a training was fed, and log the advice if there is one.

    Args:
        history: metric → its value in every epoch, as `TrainingLoop.fit` returns it.
        options: with `cache` resolved.
        shards: that were trained on.
        config: of their images.
    """
    rate, waited = (
        statistics.median(history[name][1:] or history[name])
        for name in (RATE, INPUT_WAIT_FRACTION)
    )
    advice = _advise(options, shards, config) if waited > options.max_wait else None
    if advice:
        _LOGGER.warning("Training waited %.0f %% of its time for input: %s", waited * 100, advice)
    return InputReport(rate, waited, options.cache, advice)


def _advise(options: InputConfig, shards: Shards, config: TransformConfig) -> str:
    pixels = pixel_bytes(shards, config)
    if options.cache in ("decoded", "file"):
        change = "pixels are cached already; a larger model or batch would use the time"
    elif config.storage == "originals":
        change = (
            "set ingest.shrink, so that less is decoded, or transform.storage to jpeg, of which "
            "windows are cut out of images that are small already"
        )
    elif fits_in_memory(pixels, available_memory()):
        change = f"set input.cache to decoded, which takes {gib(pixels)} of memory"
    elif not shards.local:
        change = "read from a local disk, or raise input.interleave"
    elif config.storage != "raw":
        change = f"set input.cache to file or transform.storage to raw; either takes {gib(pixels)}"
    else:
        change = "put the shards on a faster disk"
    return f"{change}. `uv run -m benchmarks.input_pipeline --data DIR` measures what helps."
