"""What an evaluated image is like, in words, so that metrics can be broken down by it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from components.contract.example import FILENAME, FORMAT, HEIGHT, LABEL, LUMINANCE, WIDTH

SLICINGS = ("class", "size", "luminance", "format", "folder")

# Of the shorter side, pixels.
_SIZES = (32, 64, 128, 256, 512, 1024)
# Of the mean luma, 0 to 255.
_BRIGHTNESSES = (64, 128, 192)


def describe_slices(features: Mapping[str, Any]) -> dict[str, str]:
    """Return the value of each slicing for one example.

    Args:
        features: key of `components.contract.example` → an array of one value, or none.
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
    """Decode what may be any bytes, as names of files may; `encode` with the same errors undoes."""
    return value.decode("utf-8", "surrogateescape")


def _first(features: Mapping[str, Any], name: str) -> Any:
    values = features.get(name)
    return None if values is None or not len(values) else values[0]


def _bin(value: float, bounds: tuple[int, ...]) -> str:
    below = [bound for bound in bounds if bound <= value]
    above = [bound for bound in bounds if bound > value]
    if not below:
        return f"under {above[0]}"
    return f"{below[-1]} to {above[0] - 1}" if above else f"{below[-1]} and more"
