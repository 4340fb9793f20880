"""The slices that evaluated images belong to, by name."""

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from components.contract.example import FILENAME, FORMAT, HEIGHT, LABEL, LUMINANCE, WIDTH
from components.evaluation.config import Slicing

SLICINGS: tuple[str, ...] = get_args(Slicing)

# Shorter side, pixels.
_SIZES = (32, 64, 128, 256, 512, 1024)
# Mean luma, 0 to 255.
_BRIGHTNESSES = (64, 128, 192)


def describe_slices(features: Mapping[str, NDArray[Any]]) -> dict[str, list[str]]:
    """Return slicing → value of every example of a batch.

    Args:
        features: key of `components.contract.example` → [examples]; unmeasured luminance is NaN.
    """
    sides = np.minimum(features[HEIGHT], features[WIDTH])
    names = [os.path.dirname(decode_text(name)) for name in features[FILENAME]]
    luminance = features[LUMINANCE]
    brightness = np.where(np.isnan(luminance), "not measured", _bin(luminance, _BRIGHTNESSES))
    return {
        "class": [decode_text(label) for label in features[LABEL]],
        "size": [f"{side} px" for side in _bin(sides, _SIZES)],
        "luminance": brightness.tolist(),
        "format": [decode_text(name) for name in features[FORMAT]],
        "folder": [name or "." for name in names],
    }


def decode_text(value: bytes) -> str:
    """Decode text that may be any bytes; `encode_text` reverses it."""
    return value.decode("utf-8", "surrogateescape")


def encode_text(value: str) -> bytes:
    """Encode text of `decode_text`."""
    return value.encode("utf-8", "surrogateescape")


def spell_path(path: str) -> str:
    """Spell a path as the table of images does, which holds no invalid bytes."""
    return encode_text(path).decode(errors="backslashreplace")


def make_readable(values: Sequence[str]) -> tuple[str, ...]:
    """Replace invalid bytes: names may hold any, and TFMA takes only text."""
    return tuple(value.encode("utf-8", "replace").decode() for value in values)


def _bin(values: NDArray[Any], bounds: tuple[int, ...]) -> NDArray[np.str_]:
    """Name the bin of each value."""
    between = [f"{low} to {high - 1}" for low, high in itertools.pairwise(bounds)]
    names = np.array([f"under {bounds[0]}", *between, f"{bounds[-1]} and more"])
    return names[np.searchsorted(bounds, values, side="right")]
