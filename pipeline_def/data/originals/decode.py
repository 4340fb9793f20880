"""Windows of originals, decoded and resized: the rows that they need, at the scale they need.

To undo the entropy coding of a photograph takes two thirds of the time of decoding it: it is only
done down to the end of the window. The rest is done at an eighth, a quarter or half of the size
where the window is that much larger than what the model sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg

from components.images.canonical_form import CHANNELS
from components.images.jpeg_frame import read_frame, upper_rows
from components.transform.config import TransformConfig
from pipeline_def.data.batch_memory import BatchMemory, Pixels
from pipeline_def.data.order import TrainingOrder
from pipeline_def.data.originals.window import CropRule, Window, scale_for

File = bytes | memoryview

# Above this factor bilinear sampling leaves pixels out; averaging areas does not.
_ALIASING = 2


class OriginalDecoder:
    """Decodes windows of originals into batches; several threads may call it at a time."""

    def __init__(self, config: TransformConfig, order: TrainingOrder) -> None:
        """Cut out windows for images of `config`, as `order` says."""
        self._size = config.seen_size
        self._rule = CropRule(order.min_crop_area, keep_shape=config.fit != "stretch")
        self._flip = order.flip
        self._memory = BatchMemory()

    def decode(self, files: Sequence[File], numbers: npt.NDArray[np.float32]) -> Pixels:
        """Decode the windows that random `numbers`, [batch, 5], stand for.

        Args:
            files: upright JPEGs, as `keep_original` leaves them.
            numbers: of each, for `CropRule.draw`; the last one says whether it is mirrored.

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
            raise ValueError("a stored original is no JPEG: the shard is damaged")
        window = self._rule.draw(frame.height, frame.width, numbers)
        scale = scale_for(window, self._size)
        part = window.shrunk(scale)
        upper = upper_rows(file, frame, (part.top + part.height) * scale)
        image = simplejpeg.decode_jpeg(
            upper,
            "RGB",
            min_width=-(-frame.width // scale) if scale > 1 else 0,
            # What lies below the rows that are kept is extraneous to the decoder.
            strict=upper is file,
        )
        _resize(image, part, out)


def _resize(image: Any, part: Window, out: Pixels) -> None:
    top, left, height, width = part
    window = image[top : top + height, left : left + width]
    if window.shape[:2] != (height, width):
        raise ValueError(f"an original has {image.shape[1]} x {image.shape[0]} pixels only")
    aliased = min(height, width) >= _ALIASING * len(out)
    method = cv2.INTER_AREA if aliased else cv2.INTER_LINEAR
    cv2.resize(window, out.shape[:2], dst=out, interpolation=method)
