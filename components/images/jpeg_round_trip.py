"""What encoding as JPEG and decoding again does to pixels, in arithmetic alone.

Exported models that take pixels need it: they run where no JPEG codec is, and a model that was
trained on JPEGs sees their losses. Results equal those of libjpeg-turbo bit by bit: its accurate
integer transforms (`jfdctint.c`, `jidctint.c`) are products with integer matrices, each followed by
one rounding.
"""

from typing import Any

import numpy as np
import tensorflow as tf

_BLOCK = 8

# ITU-T T.81, tables K.1 and K.2.
_LUMINANCE = """
16 11 10 16 24 40 51 61 12 12 14 19 26 58 60 55 14 13 16 24 40 57 69 56 14 17 22 29 51 87 80 62
18 22 37 56 68 109 103 77 24 35 55 64 81 104 113 92 49 64 78 87 103 121 120 101 72 92 95 98 112 100
103 99"""
_CHROMINANCE = np.full((_BLOCK, _BLOCK), 99)
_CHROMINANCE[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]

# Basis functions times 2 ** 13 * sqrt(8), as the sums of rounded constants in libjpeg; the right
# half mirrors the left one.
_LEFT = np.array(
    [
        [8192, 8192, 8192, 8192],
        [11363, 9633, 6437, 2260],
        [10703, 4433, -4433, -10703],
        [9633, -2259, -11362, -6436],
        [8192, -8192, -8192, 8192],
        [6437, -11362, 2261, 9633],
        [4433, -10704, 10704, -4433],
        [2260, -6436, 9633, -11363],
    ],
    np.float64,
)
_SIGNS = np.where(np.arange(_BLOCK) % 2, -1, 1)[:, np.newaxis]
_BASIS = np.concatenate([_LEFT, _LEFT[:, ::-1] * _SIGNS], axis=1)

# Times 2 ** 16, `jccolor.c` and `jdcolor.c`: to YCbCr with its offsets, and from CbCr to what they
# add to Y.
_TO_YCC = np.array(
    [[19595, 38470, 7471], [-11058, -21710, 32768], [32768, -27439, -5329]], np.float64
)
_YCC_OFFSETS = np.array([2**15 - 2**23, 2**15 - 1, 2**15 - 1], np.float64)
_FROM_CC = np.array([[0, 91881], [-22554, -46802], [116130, 0]], np.float64)


def round_trip(images: tf.Tensor, *, quality: int, half_chroma: bool) -> tf.Tensor:
    """Return `images` as after `tf.io.encode_jpeg` and an accurate `tf.io.decode_jpeg`.

    Args:
        images: float32 [batch, height, width, 3], whole numbers from 0 to 255.
        quality: 1 to 100, as libjpeg defines it.
        half_chroma: 4:2:0 instead of 4:4:4.
    """
    scaled = tf.matmul(tf.cast(images, tf.float64), _TO_YCC, transpose_b=True)
    ycc = tf.floor((scaled + _YCC_OFFSETS) / 2**16)
    luminance = _code(ycc[..., 0], _table(np.array(_LUMINANCE.split(), int), quality))
    code, table = _code_half if half_chroma else _code, _table(_CHROMINANCE, quality)
    colors = tf.stack([code(ycc[..., i], table) for i in (1, 2)], axis=-1)
    added = tf.matmul(colors, _FROM_CC, transpose_b=True)
    rgb = luminance[..., tf.newaxis] + 128 + tf.floor((added + 2**15) / 2**16)
    return tf.ensure_shape(tf.cast(tf.clip_by_value(rgb, 0, 255), tf.float32), images.shape)


def _pad(plane: tf.Tensor, rows: int, columns: int) -> tf.Tensor:
    """Repeat the last row and column until the sides are multiples of these numbers."""
    for axis, unit in ((1, rows), (2, columns)):
        side = tf.shape(plane)[axis]
        numbers = tf.minimum(tf.range((side + unit - 1) // unit * unit), side - 1)
        plane = tf.gather(plane, numbers, axis=axis)
    return plane


def _table(base: Any, quality: int) -> Any:
    """Return steps of quantization, float64 [8, 8], as `jpeg_quality_scaling` scales them."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    steps = np.clip((base * percent + 50) // 100, 1, 255)
    return steps.reshape(_BLOCK, _BLOCK).astype(np.float64)


def _code(plane: tf.Tensor, table: Any) -> tf.Tensor:
    """Transform, quantize and restore a plane around 0, float64 [batch, height, width]."""
    given, plane = tf.shape(plane), _pad(plane, _BLOCK, _BLOCK)
    shape = tf.shape(plane)
    rows, columns = shape[1] // _BLOCK, shape[2] // _BLOCK
    blocks = tf.reshape(plane, [-1, rows, _BLOCK, columns, _BLOCK])
    blocks = tf.transpose(blocks, [0, 1, 3, 2, 4])
    # Coefficients are eight times as large as the steps assume.
    coefficients = _shift(tf.matmul(blocks, _BASIS, transpose_b=True), 11)
    coefficients = _shift(tf.matmul(_BASIS, coefficients), 15)
    steps = tf.floor((tf.abs(coefficients) + 4 * table) / (8 * table))
    coefficients = tf.sign(coefficients) * steps * table
    coefficients = _shift(tf.matmul(_BASIS.T, coefficients), 11)
    blocks = _shift(tf.matmul(coefficients, _BASIS), 18)
    blocks = tf.transpose(blocks, [0, 1, 3, 2, 4])
    restored = tf.clip_by_value(tf.reshape(blocks, shape), -128, 127)
    return restored[:, : given[1], : given[2]]


def _shift(values: tf.Tensor, bits: int) -> tf.Tensor:
    """Divide by 2 ** bits, rounding halves up."""
    return tf.floor((values + 2 ** (bits - 1)) / 2**bits)


def _code_half(plane: tf.Tensor, table: Any) -> tf.Tensor:
    """Do the same at half the resolution, as `jcsample.c` and the smooth part of `jdsample.c`."""
    given, padded = tf.shape(plane), _pad(plane, 2, 2 * _BLOCK)
    rows, columns = tf.shape(padded)[1] // 2, tf.shape(padded)[2] // 2
    sums = tf.reduce_sum(tf.reshape(padded, [-1, rows, 2, columns, 2]), axis=[2, 4])
    # Halves are rounded down and up in turn.
    bias = tf.cast(1 + tf.range(columns) % 2, tf.float64)
    small = _code(tf.floor((sums + bias) / 4), table)[:, :, : (given[2] + 1) // 2]
    tall = tf.matmul(_doubling(tf.shape(small)[1]), small)
    sixteenths = tf.matmul(tall, _doubling(tf.shape(small)[2]), transpose_b=True)
    bias = tf.cast(8 - tf.range(tf.shape(sixteenths)[2]) % 2, tf.float64)
    return tf.floor((sixteenths + bias) / 16)[:, : given[1], : given[2]]


def _doubling(side: tf.Tensor) -> tf.Tensor:
    """Return weights [2 * side, side]: 3 of the nearer value and 1 of the next."""
    target, source = tf.range(2 * side), tf.range(side)
    near = target // 2
    other = tf.clip_by_value(near + 2 * (target % 2) - 1, 0, side - 1)
    # tf2onnx converts `one_hot` within a condition to an invalid node.
    hits = [tf.cast(tf.equal(i[:, tf.newaxis], source), tf.float64) for i in (near, other)]
    return 3 * hits[0] + hits[1]
