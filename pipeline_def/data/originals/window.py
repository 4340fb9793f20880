"""The windows that training cuts out of originals: where they lie, and how far they are shrunk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

NUMBERS = 5
"""Random numbers in [0, 1) that a window takes: area, aspect, top, left, and the mirror."""

_ASPECT = 4 / 3
# What libjpeg-turbo shrinks by as it decodes, each with vector instructions of its own.
_SCALES = (8, 4, 2)


class Window(NamedTuple):
    """A part of an image, pixels."""

    top: int
    left: int
    height: int
    width: int

    def shrunk(self, scale: int) -> Window:
        """Return where it lies in an image that is decoded at 1 / `scale` of its size."""
        return Window(*(value // scale for value in self))


@dataclass(frozen=True)
class CropRule:
    """Which windows may be drawn."""

    min_area: float
    """Smallest area, as a fraction of the image's; 1: the largest windows of the aspects below."""
    keep_shape: bool
    """Whether the aspect is 3/4 to 4/3 by itself, or, as images are stretched, of the image's."""

    def draw(self, height: int, width: int, numbers: Sequence[float]) -> Window:
        """Return the window of an image that random numbers, `NUMBERS` of them, stand for.

        Area and aspect are uniform and log-uniform, as in Szegedy et al. (2015). Only areas and
        aspects at which the window fits are drawn; torchvision draws again instead, and after ten
        times takes the middle.

        >>> CropRule(min_area=0.25, keep_shape=True).draw(100, 200, [0.5, 0.5, 0.5, 0.0, 0.0])
        Window(top=5, left=0, height=91, width=101)
        """
        shape = width / height
        unit = 1.0 if self.keep_shape else shape
        low, high = unit / _ASPECT, unit * _ASPECT
        # Of the largest window of an aspect within these limits.
        most = min(1.0, high / shape, shape / low)
        area = most - (1 - numbers[0]) * max(0.0, most - self.min_area)
        low, high = max(low, area * shape), min(high, shape / area)
        aspect = low * (high / low) ** numbers[1]
        across = math.sqrt(area * height * width * aspect)
        columns = min(width, max(1, round(across)))
        rows = min(height, max(1, round(across / aspect)))
        top = int(numbers[2] * (height - rows + 1))
        return Window(top, int(numbers[3] * (width - columns + 1)), rows, columns)


def scale_for(window: Window, size: int) -> int:
    """Return by how much to shrink an image as it is decoded: its window stays as large as `size`.

    >>> scale_for(Window(0, 0, 900, 1200), 224)
    4
    """
    shorter = min(window.height, window.width)
    return next((scale for scale in _SCALES if shorter // scale >= size), 1)
