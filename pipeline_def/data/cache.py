"""Which cache keeps the images for the epochs after the first, and whether it fits."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from components.contract.errors import ConfigurationError
from components.contract.machine import available_memory, gib
from components.images.canonical import CHANNELS
from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.config.originals import require_no_pixels
from pipeline_def.data.shards import Shards

_LOGGER = logging.getLogger(__name__)

# Fractions of the memory that is available, for `auto` and at most: training, its model and what
# other processes start to use need memory, too.
_AUTO_FRACTION = 0.5
_MOST_FRACTION = 0.8


def resolve_cache(
    options: InputConfig, splits: Sequence[Shards], config: TransformConfig
) -> InputConfig:
    """Replace `auto` by the kind of cache that fits into the memory that is available.

    Args:
        options: as the user gave them.
        splits: all that will be read at the same time.
        config: of the images.

    Raises:
        ConfigurationError: the cache that was asked for does not fit.
    """
    decoded = sum(pixel_bytes(shards, config) for shards in splits)
    cache = options.cache
    if config.storage == "originals":
        require_no_pixels(cache)
        cache = "none" if cache == "auto" else cache
    if cache == "auto":
        available = available_memory()
        cache = "decoded" if fits_in_memory(decoded, available) else "none"
        _LOGGER.info(
            "input.cache auto: %s, as all pixels take %s of %s of memory that are available",
            *(cache, gib(decoded), gib(available)),
        )
    if cache == "decoded":
        _require_memory("decoded", decoded, instead="file, encoded or none")
    if cache == "encoded":
        _require_memory("encoded", sum(map(_stored_bytes, splits)), instead="none")
    if cache == "file" and decoded > options.cache_file_gib * 2**30:
        raise ConfigurationError(
            f"input.cache is 'file', which takes {gib(decoded)}, and input.cache_file_gib is "
            f"{options.cache_file_gib:g}: raise it, or choose input.cache none."
        )
    return dataclasses.replace(options, cache=cache)


def fits_in_memory(size: int, available: int) -> bool:
    """Return whether `size` bytes leave enough of the `available` ones for all else."""
    return size <= _AUTO_FRACTION * available


def pixel_bytes(shards: Shards, config: TransformConfig) -> int:
    """Return the bytes of all images of `shards` as uint8 pixels."""
    return shards.total * config.stored_size**2 * CHANNELS


def _stored_bytes(shards: Shards) -> int:
    import tensorflow as tf

    return sum(tf.io.gfile.stat(path).length for path in shards.paths)


def _require_memory(cache: str, needed: int, *, instead: str) -> None:
    available = available_memory()
    if needed > _MOST_FRACTION * available:
        raise ConfigurationError(
            f"input.cache is {cache!r}, which takes {gib(needed)}, and {gib(available)} of memory "
            f"are available: choose {instead}."
        )
