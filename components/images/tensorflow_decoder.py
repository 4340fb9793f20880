"""TensorFlow's decoder for the check of files: in this process, or in the one that started it.

TensorFlow takes seconds to load and 400 MB to keep: a process that checks files asks the one that
has it already.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

# What TensorFlow puts around its messages: the node and the operation that failed.
_TENSORFLOWS_OWN = re.compile(r"\{\{.*?\}\}\s*|\s*\[Op:.*?\].*")


class UndecodableError(Exception):
    """TensorFlow cannot decode the file; the text says why."""


def decode_here(data: bytes) -> Pixels:
    """Return [height, width, 3] RGB, as Transform will see it.

    Raises:
        UndecodableError: it cannot be decoded.
    """
    import tensorflow as tf

    from components.images.canonical import decode_file

    try:
        pixels: Pixels = decode_file(tf.constant(data)).numpy()
    except tf.errors.InvalidArgumentError as error:
        reason = _TENSORFLOWS_OWN.sub("", error.message.splitlines()[0])
        raise UndecodableError(reason) from error
    return pixels


_decode: Callable[[bytes], Pixels] = decode_here


def decode_by(decode: Callable[[bytes], Pixels]) -> None:
    """From now on have `decode` do what `decode_here` does."""
    global _decode
    _decode = decode


def decode(data: bytes) -> Pixels:
    """Decode as `decode_here`, wherever TensorFlow is loaded."""
    return _decode(data)
