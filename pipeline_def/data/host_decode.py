"""Batches decoded outside TensorFlow's graph: libjpeg-turbo writes images straight into the batch.

TensorFlow decodes each image into its own tensor and copies that, which took a third longer for
photographs of 224 pixels. Decoding and copying release the interpreter lock.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
import tensorflow as tf

from components.images.canonical import CHANNELS, decode_jpeg
from components.transform.config import TransformConfig
from pipeline_def.data.host_calls import BatchMemory, Pixels
from pipeline_def.data.sampler import Int64Array
from pipeline_def.data.shards import RecordTable

# Size of the images decoded before windows are cut out of them: they should fit a core's cache.
_SCRATCH_BYTES = 2**19


class HostDecoder:
    """Decodes any records of a split into a batch."""

    def __init__(
        self,
        table: RecordTable,
        open_shard: Callable[[int], memoryview],
        config: TransformConfig,
    ) -> None:
        """Look images up in `table`; `open_shard` returns the content of shard i."""
        self._table = table
        self._open_shard = open_shard
        self._stored = config.stored_size
        self._size = config.seen_size
        self._decode = _DECODERS[config.storage]
        self._is_raw = config.storage == "raw"
        self._scratch = threading.local()
        self._memory = BatchMemory()

    def decode(self, records: Int64Array, windows: npt.NDArray[np.int32]) -> Pixels:
        """Decode `records` and cut out `windows`, [batch, 3]: top, left, and 1 to mirror.

        Returns:
            uint8 [batch, size, size, 3], aligned for TensorFlow.
        """
        batch = self._memory.take((len(records), self._size, self._size, CHANNELS))
        encoded = self.look_up(records)
        if self._stored == self._size:
            self._decode(encoded, batch)
            for number in np.flatnonzero(windows[:, 2]).tolist():
                cv2.flip(batch[number], 1, dst=batch[number])
            return batch
        whole = self._whole_images()
        for start in range(0, len(records), len(whole)):
            part = slice(start, start + len(whole))
            decoded = whole[: len(encoded[part])]
            self._decode(encoded[part], decoded)
            for image, window, out in zip(
                decoded, windows[part].tolist(), batch[part], strict=True
            ):
                _cut(image, window, out)
        return batch

    def look_up(self, records: Int64Array) -> list[Any]:
        """Return the encoded images as memoryviews; raw pixels as flat arrays."""
        table = self._table
        starts = table.offset[records]
        ends = starts + table.length[records]
        shards = table.shard[records].tolist()
        opened: dict[int, Any] = {shard: self._open_shard(shard) for shard in set(shards)}
        if self._is_raw:
            # Slicing an array costs a third of making an array of a slice.
            opened = {shard: np.frombuffer(view, np.uint8) for shard, view in opened.items()}
        places = zip(shards, starts.tolist(), ends.tolist(), strict=True)
        return [opened[shard][start:end] for shard, start, end in places]

    def _whole_images(self) -> Pixels:
        """Return this thread's scratch memory for images before cropping."""
        if not hasattr(self._scratch, "images"):
            shape = (self._stored, self._stored, CHANNELS)
            count = max(1, _SCRATCH_BYTES // math.prod(shape))
            self._scratch.images = np.empty((count, *shape), np.uint8)
        images: Pixels = self._scratch.images
        return images


def cut_windows(
    pixels: Pixels,
    records: Int64Array,
    windows: npt.NDArray[np.int32],
    *,
    size: int,
    memory: BatchMemory,
) -> Pixels:
    """Copy windows of the images `records` of `pixels` into a batch, like `HostDecoder.decode`."""
    batch = memory.take((len(records), size, size, CHANNELS))
    for image, record, window in zip(batch, records.tolist(), windows.tolist(), strict=True):
        _cut(pixels[record], window, image)
    return batch


def _cut(whole: Pixels, window: list[int], out: Pixels) -> None:
    top, left, mirrored = window
    part = whole[top : top + len(out), left : left + len(out)]
    if mirrored:
        # NumPy takes ten times as long to reverse pixels of three bytes.
        cv2.flip(part, 1, dst=out)
    else:
        out[:] = part


def _decode_jpegs(encoded: Sequence[memoryview], out: Pixels) -> None:
    """Decode to the pixels of `canonical.decode_jpeg`: accurate DCT, interpolated chroma."""
    for file, pixels in zip(encoded, out, strict=True):
        try:
            image = simplejpeg.decode_jpeg(file, "RGB", buffer=pixels)
        except (ValueError, KeyError):
            # Rare subsampling, or a decoder warning that TensorFlow ignores.
            image = decode_jpeg(tf.constant(bytes(file))).numpy()
            _store(image, pixels)
        else:
            if image.shape != pixels.shape:
                _store(image, pixels)


def _decode_pngs(encoded: Sequence[memoryview], out: Pixels) -> None:
    for file, pixels in zip(encoded, out, strict=True):
        _store(cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR_RGB), pixels)


def _copy_raw(images: Sequence[Pixels], out: Pixels) -> None:
    shape = out.shape[1:]
    if {len(pixels) for pixels in images} != {math.prod(shape)}:
        for pixels in images:
            # Raises an error that names the found and the expected size.
            pixels.reshape(shape)
    # One call per batch, which releases the interpreter lock.
    np.concatenate(images, out=out.reshape(-1))


def _store(image: Any, out: Pixels) -> None:
    if image is None or image.shape != out.shape:
        found = "unreadable" if image is None else f"{image.shape[1]} x {image.shape[0]} pixels"
        raise ValueError(f"a stored image is {found}, not {out.shape[1]} x {out.shape[0]}")
    out[:] = image


_DECODERS: dict[str, Callable[[Sequence[Any], Pixels], None]] = {
    "jpeg": _decode_jpegs,
    "png": _decode_pngs,
    "raw": _copy_raw,
    # Splits other than train.
    "originals": _decode_jpegs,
}
