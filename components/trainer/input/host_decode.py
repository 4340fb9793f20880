"""Batches decoded outside TensorFlow's graph: libjpeg-turbo writes images straight into the batch.

TensorFlow decodes each image into its own tensor and copies that, which took a third longer for
photographs of 224 pixels. Decoding and copying release the interpreter lock.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
import simplejpeg
import tensorflow as tf

from components.images.canonical import decode_jpeg
from components.images.options import CHANNELS, TransformConfig
from components.trainer.input.host_calls import BatchMemory, Pixels


class HostDecoder:
    """Decodes canonical images into a batch; safe to call from several threads."""

    def __init__(self, config: TransformConfig) -> None:
        """Decode images of `config`."""
        self._config = config
        self._memory = BatchMemory()

    def decode(self, encoded: Sequence[Any]) -> Pixels:
        """Decode images to uint8 [batch, size, size, 3], aligned for TensorFlow."""
        side = self._config.seen_size
        batch = self._memory.take((len(encoded), side, side, CHANNELS))
        _DECODERS[self._config.storage](encoded, batch)
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
        size = "unreadable" if image is None else f"{image.shape[1]} x {image.shape[0]} pixels"
        raise ValueError(f"a stored image is {size}, not {out.shape[1]} x {out.shape[0]}")
    out[:] = image


_DECODERS: dict[str, Callable[[Sequence[Any], Pixels], None]] = {
    "jpeg": _decode_jpegs,
    "png": _decode_pngs,
    "raw": _copy_raw,
}
