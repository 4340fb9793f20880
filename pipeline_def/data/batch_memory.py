"""Memory for batches of images that TensorFlow takes over without a copy."""

from __future__ import annotations

import math
import sys
import threading

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

# TensorFlow takes over an array without a copy if it begins at a multiple of this.
_ALIGNMENT = 64

# References to memory that no batch lies in: from the list, from a variable, from the question.
_UNUSED = 3


def empty_aligned(shape: tuple[int, ...]) -> Pixels:
    """Return an uninitialized uint8 array that TensorFlow can take over without a copy."""
    return _aligned(np.empty(math.prod(shape) + _ALIGNMENT, np.uint8), shape)


def _aligned(memory: Pixels, shape: tuple[int, ...]) -> Pixels:
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + math.prod(shape)].reshape(shape)


class BatchMemory:
    """Memory for batches, used again once nobody has a batch that lies in it.

    The system clears what it gives, page by page; for raw pixels that took as long as copying them.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._lock = threading.Lock()
        self._memory: list[Pixels] = []

    def take(self, shape: tuple[int, ...]) -> Pixels:
        """Return an uninitialized uint8 array that TensorFlow can take over without a copy."""
        size = math.prod(shape) + _ALIGNMENT
        with self._lock:
            for memory in self._memory:
                # Arrays that lie in it, and tensors that have taken one over, refer to it.
                if memory.size == size and sys.getrefcount(memory) == _UNUSED:
                    return _aligned(memory, shape)
            self._memory = [m for m in self._memory if m.size == size]
            self._memory.append(np.empty(size, np.uint8))
            return _aligned(self._memory[-1], shape)
