"""Random crops of originals: decode only the rows that a crop needs, at the scale that it needs.

Entropy decoding takes two thirds of the time of a photograph, so it stops at the end of the crop.
The rest runs at an eighth, a quarter or half of the size if the crop is that much too large.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg

from components.images.jpeg_frame import read_frame, upper_rows
from components.images.options import ALIASING, CHANNELS, TransformConfig
from components.trainer.input.host_calls import BatchMemory, Pixels
from components.trainer.input.sampler import TrainingOrder

NUMBERS = 5
"""Random numbers in [0, 1) per crop: area, aspect ratio, top, left, and mirroring."""

_ASPECT = 4 / 3
# libjpeg-turbo has vector instructions for these scales only.
_SCALES = (8, 4, 2)

File = bytes | memoryview


class Window(NamedTuple):
    """A part of an image, pixels."""

    top: int
    left: int
    height: int
    width: int

    def shrunk(self, scale: int) -> "Window":
        """Return the same part of the image decoded at 1 / `scale` of its size."""
        return Window(*(value // scale for value in self))


@dataclass(frozen=True)
class CropRule:
    """The distribution of random crops."""

    min_area: float
    """Smallest area, as a fraction of the image; 1: the largest crop of each aspect ratio."""
    keep_shape: bool
    """Whether aspect ratios from 3/4 to 4/3 are absolute, or, for stretched images, relative to
    the image's."""

    def draw(self, height: int, width: int, numbers: Sequence[float]) -> Window:
        """Return the crop of an image for `NUMBERS` random numbers.

        The area is uniform and the aspect ratio log-uniform, as in Szegedy et al. (2015), among
        those that fit; torchvision draws again instead, and falls back to the center.

        >>> CropRule(min_area=0.25, keep_shape=True).draw(100, 200, [0.5, 0.5, 0.5, 0.0, 0.0])
        Window(top=5, left=0, height=91, width=101)
        """
        shape = width / height
        unit = 1.0 if self.keep_shape else shape
        low, high = unit / _ASPECT, unit * _ASPECT
        # The largest crop with an aspect ratio within these limits.
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
    """Return the largest scale at which the decoded crop is not smaller than `size`.

    >>> scale_for(Window(0, 0, 900, 1200), 224)
    4
    """
    shorter = min(window.height, window.width)
    return next((scale for scale in _SCALES if shorter // scale >= size), 1)


class OriginalDecoder:
    """Decodes crops of originals into batches; safe to call from several threads."""

    def __init__(self, config: TransformConfig, order: TrainingOrder) -> None:
        """Crop images of `config` as `order` asks."""
        self._size = config.seen_size
        self._rule = CropRule(order.min_crop_area, keep_shape=config.fit != "stretch")
        self._flip = order.flip
        self._memory = BatchMemory()

    def decode(self, files: Sequence[File], numbers: npt.NDArray[np.float32]) -> Pixels:
        """Decode crops of upright JPEGs, as `keep_original` leaves them.

        Args:
            files: JPEGs [batch].
            numbers: [batch, 5], for `CropRule.draw`; the last of each row decides mirroring.

        Returns:
            uint8 [batch, size, size, 3], aligned for TensorFlow.
        """
        batch = self._memory.take((len(files), self._size, self._size, CHANNELS))
        for file, row, out in zip(files, numbers.tolist(), batch, strict=True):
            self._decode_one(file, row, out)
            if self._flip and row[-1] < 0.5:
                cv2.flip(out, 1, dst=out)
        return batch

    def _decode_one(self, file: File, numbers: Sequence[float], out: Pixels) -> None:
        frame = read_frame(file)
        if frame is None:
            raise ValueError("a stored original is not a JPEG: the shard is damaged")
        window = self._rule.draw(frame.height, frame.width, numbers)
        scale = scale_for(window, self._size)
        part = window.shrunk(scale)
        upper = upper_rows(file, frame, (part.top + part.height) * scale)
        image = simplejpeg.decode_jpeg(
            upper,
            "RGB",
            min_width=-(-frame.width // scale) if scale > 1 else 0,
            # The rows that were cut off are extraneous bytes to the decoder.
            strict=upper is file,
        )
        _resize(image, part, out)


def _resize(image: Any, part: Window, out: Pixels) -> None:
    top, left, height, width = part
    window = image[top : top + height, left : left + width]
    if window.shape[:2] != (height, width):
        raise ValueError(f"an original has only {image.shape[1]} x {image.shape[0]} pixels")
    aliased = min(height, width) >= ALIASING * len(out)
    method = cv2.INTER_AREA if aliased else cv2.INTER_LINEAR
    cv2.resize(window, out.shape[:2], dst=out, interpolation=method)
