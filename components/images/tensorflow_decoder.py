"""Decoding by TensorFlow for file checks, in this process or in the one that started it.

TensorFlow takes seconds to load and 400 MB of memory, so worker processes use their parent's.
"""

import re
from collections.abc import Callable
from typing import Any

from components.images.transcode import Pixels

Decoder = Callable[[bytes], Any]
"""`decode_here` or `read_orientation_here`; takes the content of a file."""
Run = Callable[[Decoder, bytes], Any]
"""Runs a decoder in some process."""

# Node and operation, which TensorFlow adds to its messages.
_CONTEXT = re.compile(r"\{\{.*?\}\}\s*|\s*\[Op:.*?\].*")


class UndecodableError(Exception):
    """TensorFlow cannot decode the file; the message says why."""


def decode_here(data: bytes) -> Pixels:
    """Return uint8 [height, width, 3] RGB, as Transform will see it.

    Raises:
        UndecodableError: it cannot be decoded.
    """
    import tensorflow as tf

    from components.images.canonical import decode_file

    try:
        pixels: Pixels = decode_file(tf.constant(data)).numpy()
    except tf.errors.InvalidArgumentError as error:
        raise UndecodableError(_CONTEXT.sub("", error.message.splitlines()[0])) from error
    return pixels


def read_orientation_here(data: bytes) -> int:
    """Return the orientation that the served graph would read, 1 to 8; 1 is upright."""
    import tensorflow as tf

    from components.images.upright import read_orientations

    return int(read_orientations(tf.constant([data]))[0])


def run_here(decoder: Decoder, data: bytes) -> Any:
    """Run a decoder in this process."""
    return decoder(data)


_run: Run = run_here


def run_with(run: Run) -> None:
    """Have `run` run decoders from now on, instead of `run_here`."""
    global _run
    _run = run


def decode(data: bytes) -> Pixels:
    """Run `decode_here` in the process that has TensorFlow."""
    pixels: Pixels = _run(decode_here, data)
    return pixels


def read_orientation(data: bytes) -> int:
    """Run `read_orientation_here` in the process that has TensorFlow."""
    return int(_run(read_orientation_here, data))
