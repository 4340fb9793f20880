"""The slices that an evaluated image belongs to, in words."""

from __future__ import annotations

import os
from bisect import bisect
from collections.abc import Mapping
from typing import Any, get_args

from components.contract.example import FILENAME, FORMAT, HEIGHT, LABEL, LUMINANCE, WIDTH
from components.evaluation.config import Slicing

SLICINGS: tuple[str, ...] = get_args(Slicing)

# Shorter side, pixels.
_SIZES = (32, 64, 128, 256, 512, 1024)
# Mean luma, 0 to 255.
_BRIGHTNESSES = (64, 128, 192)


def describe_slices(features: Mapping[str, Any]) -> dict[str, str]:
    """Return the value of each slicing for one example.

    Args:
        features: key of `components.contract.example` → an array of at most one value.
    """
    luminance = _first(features, LUMINANCE)
    side = min(int(_first(features, HEIGHT)), int(_first(features, WIDTH)))
    return {
        "class": decode_text(_first(features, LABEL)),
        "size": f"{_bin(side, _SIZES)} px",
        "luminance": "not measured" if luminance is None else _bin(float(luminance), _BRIGHTNESSES),
        "format": decode_text(_first(features, FORMAT)),
        "folder": os.path.dirname(decode_text(_first(features, FILENAME))) or ".",
    }


def decode_text(value: bytes) -> str:
    """Decode text that may be any bytes; `encode` with the same error handler reverses it."""
    return value.decode("utf-8", "surrogateescape")


def _first(features: Mapping[str, Any], name: str) -> Any:
    values = features.get(name)
    return None if values is None or not len(values) else values[0]


def _bin(value: float, bounds: tuple[int, ...]) -> str:
    place = bisect(bounds, value)
    if place == 0:
        return f"under {bounds[0]}"
    last = place == len(bounds)
    return f"{bounds[-1]} and more" if last else f"{bounds[place - 1]} to {bounds[place] - 1}"
