"""Batches decoded outside TensorFlow's graph: libjpeg-turbo writes images straight into the batch.

TensorFlow decodes each image into its own tensor and copies that, which took a third longer for
photographs of 224 pixels. Decoding and copying release the interpreter lock.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
import tensorflow as tf

from components.images.canonical import decode_jpeg
from components.images.options import CHANNELS, TransformConfig
from components.trainer.input.host_calls import BatchMemory, Pixels
from components.trainer.input.sampler import Int64Array

Bools = npt.NDArray[np.bool_]


class HostDecoder:
    """Decodes canonical images into a batch; safe to call from several threads."""

    def __init__(self, config: TransformConfig) -> None:
        """Decode images of `config`."""
        self._config = config
        self._memory = BatchMemory()

    def decode(self, encoded: Sequence[Any], mirrored: Bools) -> Pixels:
        """Decode images, and mirror those for which `mirrored`, [batch], is true.

        Returns:
            uint8 [batch, size, size, 3], aligned for TensorFlow.
        """
        side = self._config.seen_size
        batch = self._memory.take((len(encoded), side, side, CHANNELS))
        _DECODERS[self._config.storage](encoded, batch)
        for number in np.flatnonzero(mirrored).tolist():
            cv2.flip(batch[number], 1, dst=batch[number])
        return batch


def copy_images(
    pixels: Pixels, records: Int64Array, mirrored: Bools, *, memory: BatchMemory
) -> Pixels:
    """Copy the images `records` of `pixels` into a batch, like `HostDecoder.decode`."""
    batch = memory.take((len(records), *pixels.shape[1:]))
    for image, record, mirror in zip(batch, records.tolist(), mirrored.tolist(), strict=True):
        if mirror:
            # NumPy takes ten times as long to reverse pixels of three bytes.
            cv2.flip(pixels[record], 1, dst=image)
        else:
            image[:] = pixels[record]
    return batch


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
        # IMREAD_COLOR_RGB came with OpenCV 4.11.
        _store(cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR), pixels)
        cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, dst=pixels)


def _copy_raw(files: Sequence[bytes | memoryview], out: Pixels) -> None:
    size = math.prod(out.shape[1:])
    rows = [np.frombuffer(file, np.uint8).reshape(1, size) for file in files]
    # Unlike `np.concatenate`, it releases the interpreter lock once, not for every image.
    cv2.vconcat(rows, out.reshape(len(out), -1))


def _store(image: Any, out: Pixels) -> None:
    if image is None or image.shape != out.shape:
        found = "unreadable" if image is None else f"{image.shape[1]} x {image.shape[0]} pixels"
        raise ValueError(f"a stored image is {found}, not {out.shape[1]} x {out.shape[0]}")
    out[:] = image


_DECODERS: dict[str, Callable[[Sequence[Any], Pixels], None]] = {
    "jpeg": _decode_jpegs,
    "png": _decode_pngs,
    "raw": _copy_raw,
}
