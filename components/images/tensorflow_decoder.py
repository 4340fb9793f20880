"""What the check of files asks TensorFlow: in this process, or in the one that started it.

TensorFlow takes seconds to load and 400 MB to keep: a process that checks files asks the one that
has it already.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

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


def read_orientation_here(data: bytes) -> int:
    """Return how the graph would turn an image, 1 to 8; 1 is upright."""
    import tensorflow as tf

    from components.images.upright import read_orientations

    return int(read_orientations(tf.constant([data]))[0])


Question = Callable[[bytes], Any]
"""`decode_here` or `read_orientation_here`, to be called with the bytes of a file."""


def answer_here(question: Question, data: bytes) -> Any:
    """Load TensorFlow in this process, if it is not there yet."""
    return question(data)


_answer: Callable[[Question, bytes], Any] = answer_here


def answer_by(answer: Callable[[Question, bytes], Any]) -> None:
    """From now on have `answer` do what `answer_here` does."""
    global _answer
    _answer = answer


def decode(data: bytes) -> Pixels:
    """Decode as `decode_here`, wherever TensorFlow is loaded."""
    pixels: Pixels = _answer(decode_here, data)
    return pixels


def read_orientation(data: bytes) -> int:
    """Read as `read_orientation_here`, wherever TensorFlow is loaded."""
    return int(_answer(read_orientation_here, data))
