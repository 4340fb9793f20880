"""Batches decoded outside TensorFlow's graph: libjpeg-turbo writes each image where it belongs.

TensorFlow's decoder gives each image a tensor of its own, which is then copied into the batch;
this took a third longer for photographs of 224 pixels. The interpreter's lock is not held while
pixels are decoded or copied, so threads run in parallel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
import tensorflow as tf

from components.images.canonical import decode_jpeg
from components.images.canonical_form import CHANNELS
from components.transform.config import TransformConfig
from pipeline_def.data.batch_memory import BatchMemory, Pixels
from pipeline_def.data.order import Int64Array
from pipeline_def.data.shards import RecordTable


class HostDecoder:
    """Decodes any records of a split into a batch."""

    def __init__(
        self,
        table: RecordTable,
        open_shard: Callable[[int], memoryview],
        config: TransformConfig,
    ) -> None:
        """Look images up in `table`; `open_shard` gives the content of a shard by its number."""
        self._table = table
        self._open_shard = open_shard
        self._stored = config.stored_size
        self._size = config.seen_size
        self._decode = _DECODERS[config.storage]
        self._scratch = threading.local()
        self._memory = BatchMemory()

    def decode(self, records: Int64Array, windows: npt.NDArray[np.int32]) -> Pixels:
        """Decode `records` and cut out `windows`, [batch, 3]: top, left, and 1 to mirror.

        Returns:
            uint8 [batch, size, size, 3], aligned for TensorFlow.
        """
        batch = self._memory.take((len(records), self._size, self._size, CHANNELS))
        table = self._table
        shards, starts = table.shard[records].tolist(), table.offset[records].tolist()
        lengths = table.length[records].tolist()
        for image, shard, start, length, window in zip(
            batch, shards, starts, lengths, windows.tolist(), strict=True
        ):
            encoded = self._open_shard(shard)[start : start + length]
            if self._stored == self._size and not window[2]:
                self._decode(encoded, image)
            else:
                whole = self._whole_image()
                self._decode(encoded, whole)
                _cut(whole, window, image)
        return batch

    def _whole_image(self) -> Pixels:
        """Return this thread's memory for an image of which a window is wanted."""
        if not hasattr(self._scratch, "image"):
            self._scratch.image = np.empty((self._stored, self._stored, CHANNELS), np.uint8)
        image: Pixels = self._scratch.image
        return image


def cut_windows(
    pixels: Pixels,
    records: Int64Array,
    windows: npt.NDArray[np.int32],
    *,
    size: int,
    memory: BatchMemory,
) -> Pixels:
    """Copy a window of each of the images `records` of `pixels`; else as `HostDecoder.decode`."""
    batch = memory.take((len(records), size, size, CHANNELS))
    for image, record, window in zip(batch, records.tolist(), windows.tolist(), strict=True):
        _cut(pixels[record], window, image)
    return batch


def _cut(whole: Pixels, window: list[int], out: Pixels) -> None:
    """Copy the part of `whole` that begins at a window's top and left; mirror it if it says so."""
    top, left, mirrored = window
    part = whole[top : top + len(out), left : left + len(out)]
    if mirrored:
        # NumPy would take ten times as long for pixels of three bytes in reverse.
        cv2.flip(part, 1, dst=out)
    else:
        out[:] = part


def _decode_jpeg(encoded: memoryview, out: Pixels) -> None:
    """Decode to the pixels of `image.decode_jpeg`: accurate transform, chroma interpolated."""
    try:
        image = simplejpeg.decode_jpeg(encoded, "RGB", buffer=out)
    except (ValueError, KeyError):
        # Odd subsampling, or a warning of the decoder that TensorFlow overlooks.
        image = decode_jpeg(tf.constant(bytes(encoded))).numpy()
        _store(image, out)
        return
    if image.shape != out.shape:
        _store(image, out)


def _decode_png(encoded: memoryview, out: Pixels) -> None:
    _store(cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR_RGB), out)


def _copy_raw(encoded: memoryview, out: Pixels) -> None:
    _store(np.frombuffer(encoded, np.uint8).reshape(out.shape), out)


def _store(image: Any, out: Pixels) -> None:
    if image is None or image.shape != out.shape:
        found = "no image" if image is None else f"{image.shape[1]} x {image.shape[0]} pixels"
        raise ValueError(f"a stored image is {found}, not {out.shape[1]} x {out.shape[0]}")
    out[:] = image


_DECODERS: dict[str, Callable[[memoryview, Pixels], None]] = {
    "jpeg": _decode_jpeg,
    "png": _decode_png,
    "raw": _copy_raw,
}
