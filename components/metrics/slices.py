"""The slices that evaluated images belong to, by name."""

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.contract.errors import ConfigurationError
from components.contract.example import (
    ALL_COLUMNS,
    COLUMNS,
    FILENAME,
    FORMAT,
    HEIGHT,
    LABEL,
    LUMINANCE,
    SLICINGS,
    SPAN,
    WIDTH,
    decode_text,
)

Columns = Mapping[str, Mapping[str, Any]]
"""Name of a column → its description in the index of the examples."""

MISSING_NUMBER = -(2**63)
"""Stands for a missing whole number; NaN stands for other missing numbers."""

_MISSING = "not given"
# Slices of a column that is not named in the configuration.
_MOST_SLICES = 30
# Shorter side, pixels.
_SIZES = (32, 64, 128, 256, 512, 1024)
# Mean luma, 0 to 255.
_BRIGHTNESSES = (64, 128, 192)


def choose_slices(slices: Sequence[str], columns: Columns) -> list[str]:
    """Replace the entry `columns` by the names of all columns with few slices."""
    for name in slices:
        if name not in (*SLICINGS, ALL_COLUMNS, *columns):
            known = ", ".join((*SLICINGS, ALL_COLUMNS, *columns))
            raise ConfigurationError(
                f"evaluation.slices names {name!r}, but it must be one of {known}."
            )
    few = [name for name, column in columns.items() if column.get("values", 0) <= _MOST_SLICES]
    chosen = [few if name == ALL_COLUMNS else [name] for name in slices]
    return list(dict.fromkeys(itertools.chain.from_iterable(chosen)))


def describe_slices(features: Mapping[str, NDArray[Any]], columns: Columns) -> dict[str, list[str]]:
    """Return slicing → value of every example of a batch.

    `features` are key → [examples], with NaN for unmeasured luminance; `columns` are further
    slicings.
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
        **{name: _describe_column(name, features, column) for name, column in columns.items()},
    }


def _describe_column(
    name: str, features: Mapping[str, NDArray[Any]], column: Mapping[str, Any]
) -> list[str]:
    values = features[COLUMNS + name]
    if column["type"] == "str":
        return [decode_text(value) or _MISSING for value in values]
    missing = np.isnan(values) if column["type"] == "float" else values == MISSING_NUMBER
    bounds = column.get("bounds")
    if not bounds:
        texts = [f"{value:.6g}" if column["type"] == "float" else str(value) for value in values]
    elif name == SPAN:
        texts = ["newest" if value >= bounds[0] else "earlier" for value in values]
    else:
        between = [f"{low} to under {high}" for low, high in itertools.pairwise(bounds)]
        bins = [f"under {bounds[0]}", *between, f"{bounds[-1]} and more"]
        texts = [bins[place] for place in np.searchsorted(bounds, values, side="right")]
    return [_MISSING if gone else text for gone, text in zip(missing, texts, strict=True)]


def make_readable(values: Sequence[str]) -> tuple[str, ...]:
    """Replace invalid bytes: names may hold any, and TFMA takes only text."""
    return tuple(value.encode("utf-8", "replace").decode() for value in values)


def _bin(values: NDArray[Any], bounds: tuple[int, ...]) -> NDArray[np.str_]:
    """Name the bin of each value."""
    between = [f"{low} to {high - 1}" for low, high in itertools.pairwise(bounds)]
    names = np.array([f"under {bounds[0]}", *between, f"{bounds[-1]} and more"])
    return names[np.searchsorted(bounds, values, side="right")]
