"""Python functions called from tf.data's threads: they decode batches, into memory that is reused.

libjpeg-turbo writes images straight into the batch. TensorFlow decodes each into its own tensor and
copies that, which took a third longer for photographs of 224 pixels. Decoding and copying release
the interpreter lock.
"""

import atexit
import contextlib
import functools
import itertools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
import tensorflow as tf
from tensorflow.python.framework import config

from components.images.canonical import decode_jpeg
from components.images.options import CHANNELS, TransformConfig
from components.records.tfrecord import without_tuning

Pixels = npt.NDArray[np.uint8]

# TensorFlow takes over arrays without copying them if they are aligned to this.
_ALIGNMENT = 64

# References to unused batch memory: from the list, a variable, and `getrefcount` itself.
_UNUSED = 3

# At exit: seconds without a call to wait for, and the longest wait.
_QUIET_SECONDS, _LONGEST_WAIT = 0.1, 10.0


def call_on_host(function: Callable[..., Pixels], records: tf.Tensor, *, side: int) -> tf.Tensor:
    """Call `function(records)` on an array; return uint8 images [batch, side, side, 3].

    Records are numbers or files.
    """
    images = tf.numpy_function(guard(function), [records], tf.uint8, stateful=False)
    return tf.ensure_shape(images, [records.shape[0], side, side, CHANNELS])


class _Calls:
    """Counts running calls, so that Python's exit can wait for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._latest = 0.0
        self._closing = False
        self._functions: dict[int, Callable[..., Any]] = {}
        self._numbers = itertools.count()
        atexit.register(self.close)

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        number = next(self._numbers)
        self._functions[number] = function
        return functools.partial(self.run, number)

    def forget(self) -> None:
        self._functions.clear()

    def run(self, number: int, *arguments: Any) -> Any:
        with self._lock:
            self._latest = time.monotonic()
            if self._closing:
                raise RuntimeError("Python is exiting")
            function = self._functions[number]
            self._running += 1
        try:
            return function(*arguments)
        finally:
            with self._lock:
                self._running -= 1

    def close(self) -> None:
        with self._lock:
            self._closing = True
        end = time.monotonic() + _LONGEST_WAIT
        while time.monotonic() < end and (
            self._running or time.monotonic() - self._latest <= _QUIET_SECONDS
        ):
            time.sleep(_QUIET_SECONDS / 4)


_calls = functools.cache(_Calls)


def guard(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function for `tf.numpy_function` so that Python's exit waits for it and ends it.

    A thread that needs the interpreter lock after that blocks forever, and so would the iterator
    that waits for the thread: a process interrupted during training would hang.
    """
    return _calls().guard(function)


def forget_calls() -> None:
    """Forget all guarded functions, with the images that they hold; no dataset calls them anymore.

    TensorFlow keeps each function of `tf.numpy_function` until the process ends.
    """
    _calls().forget()


def empty_aligned(shape: tuple[int, ...]) -> Pixels:
    """Return an uninitialized uint8 array that TensorFlow takes over without copying it."""
    return _aligned(np.empty(math.prod(shape) + _ALIGNMENT, np.uint8), shape)


def read_ahead(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Return the batches, each read two steps before it is needed."""
    return without_tuning(batches.prefetch(2))


def share_captured(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keep TensorFlow from copying the tensors that functions of `dataset` capture."""
    options = tf.data.Options()
    # They rewrite the dataset for each iterator, with a copy of all pixels.
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


@contextlib.contextmanager
def sharing_captured() -> Iterator[None]:
    """Make iterators of `share_captured` datasets, also if operations are deterministic.

    That would rewrite the dataset, with a copy of all pixels. It is deterministic as it is.
    """
    was_on = config.is_op_determinism_enabled()
    config.disable_op_determinism()
    try:
        yield
    finally:
        if was_on:
            tf.config.experimental.enable_op_determinism()


def _aligned(memory: Pixels, shape: tuple[int, ...]) -> Pixels:
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + math.prod(shape)].reshape(shape)


class BatchMemory:
    """Reuses the memory of batches that nothing refers to anymore.

    The system zeroes new memory, page by page; for raw pixels that took as long as copying them.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._memory: list[Pixels] = []

    def take(self, shape: tuple[int, ...]) -> Pixels:
        """Return an uninitialized uint8 array, like `empty_aligned`."""
        size = math.prod(shape) + _ALIGNMENT
        with self._lock:
            for memory in self._memory:
                # Views of it and tensors that took it over hold references.
                if memory.size == size and sys.getrefcount(memory) == _UNUSED:
                    return _aligned(memory, shape)
            self._memory = [m for m in self._memory if m.size == size]
            self._memory.append(np.empty(size, np.uint8))
            return _aligned(self._memory[-1], shape)


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
