"""The segments of JPEG files in TensorFlow's graph, for a whole batch at once."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

HEAD_BYTES = 10
"""How much of a segment is looked at: marker, length, and what tells it from others."""

# More than any camera or program writes before the pixels.
_MOST_SEGMENTS = 1000

# Start of scan, and the markers that no length follows.
_SCAN = 0xDA
_WITHOUT_LENGTH = (0x00, 0x01, *range(0xD0, 0xDA))


def find_segments(
    files: tf.Tensor, is_wanted: Callable[[tf.Tensor], tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Find the first segment before the pixels of each file that `is_wanted`.

    Args:
        files: string [batch].
        is_wanted: the first bytes of a segment, int32 [batch, 10], of which 0 and 1 are its marker,
            2 and 3 its length → bool [batch].

    Returns:
        The first bytes of the segment, int32 [batch, 10], and where it begins, int32 [batch]; zeros
        where there is none, or the segments are not in order.

    Source: ITU-T T.81, B.1.1 and B.2.
    """

    def goes_on(_: tf.Tensor, heads: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(_is_passed_over(heads, is_wanted))

    def step(positions: tf.Tensor, heads: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Any number of bytes 0xFF may precede a marker.
        lengths = tf.where(tf.equal(heads[:, 1], 0xFF), 1, 2 + heads[:, 2] * 256 + heads[:, 3])
        lengths = tf.where(_is_passed_over(heads, is_wanted), lengths, 0)
        positions = tf.minimum(positions + lengths, tf.strings.length(files))
        return positions, _read_heads(files, positions)

    # Files of fewer bytes begin with no segment, wherever they are looked at.
    positions = tf.minimum(2, tf.strings.length(files))
    positions, heads = tf.while_loop(
        goes_on,
        step,
        (positions, _read_heads(files, positions)),
        maximum_iterations=_MOST_SEGMENTS,
    )
    found = tf.equal(heads[:, 0], 0xFF) & is_wanted(heads)
    return tf.where(found[:, tf.newaxis], heads, 0), tf.where(found, positions, 0)


def _read_heads(files: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    heads = tf.strings.substr(files, positions, tf.fill(tf.shape(positions), HEAD_BYTES))
    return tf.cast(tf.io.decode_raw(heads, tf.uint8, fixed_length=HEAD_BYTES), tf.int32)


def _is_passed_over(heads: tf.Tensor, is_wanted: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    ends = tf.equal(heads[:, 1:2], [_SCAN, *_WITHOUT_LENGTH])
    return (
        tf.equal(heads[:, 0], 0xFF)
        & tf.logical_not(tf.reduce_any(ends, axis=1))
        & tf.logical_not(is_wanted(heads))
    )
