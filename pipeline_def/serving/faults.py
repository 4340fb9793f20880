"""What keeps the served model from decoding a file, told in the graph from its header alone."""

from __future__ import annotations

import tensorflow as tf

from components.images.upright import find_segments

MAX_MIB = 32
"""Largest file that the served model decodes, MiB."""

MAX_MPIXELS = 50
"""Most pixels of an image that the served model decodes, million: three bytes each."""

# What a file begins with, and at which byte. TensorFlow can decode the first four.
_DECODED = ("JPEG", "PNG", "GIF", "BMP")
_MAGIC = (
    ("JPEG", 0, b"\xff\xd8\xff"),
    ("PNG", 0, b"\x89PNG\r\n\x1a\n"),
    ("GIF", 0, b"GIF8"),
    ("BMP", 0, b"BM"),
    ("WebP", 8, b"WEBP"),
    ("TIFF", 0, b"II*\0"),
    ("TIFF", 0, b"MM\0*"),
    ("HEIC or AVIF", 4, b"ftyp"),
)
_HEADER_BYTES = 32


def are_sound(files: tf.Tensor) -> tf.Tensor:
    """Say of each of `files`, string [batch], whether its header lets it be decoded.

    Whether it is an image at all shows when it is decoded.
    """
    sides = _read_sides(files)
    within = tf.strings.length(files) <= MAX_MIB * 2**20
    return within & _are_few(sides) & tf.reduce_all(sides >= 0, axis=1)


def find_faults(files: tf.Tensor) -> tf.Tensor:
    """Say why each of `files`, string [batch], is not decoded; empty where it may be."""
    bytes_, formats, sides = tf.strings.length(files), _formats(files), _read_sides(files)
    decoded = tf.reduce_any(tf.equal(formats[:, tf.newaxis], _DECODED), axis=1)
    shape = tf.strings.reduce_join(tf.strings.as_string(sides), axis=1, separator=" x ")
    mebibytes = tf.strings.as_string(tf.cast(bytes_, tf.float32) / 2**20, precision=1)
    faults = tf.fill(tf.shape(files), "")
    # The last one that applies is what is said.
    for applies, words in (
        (tf.logical_not(_are_few(sides)), [shape, f" pixels, above {MAX_MPIXELS} million"]),
        (sides[:, 0] < 0, [describe_damage(files)]),
        (bytes_ > MAX_MIB * 2**20, [mebibytes, f" MiB, above {MAX_MIB} MiB"]),
        (tf.logical_not(decoded), [formats, " is not decoded: convert it to PNG or JPEG"]),
        (tf.equal(formats, ""), ["not an image: neither JPEG, PNG, GIF nor BMP"]),
        (tf.equal(bytes_, 0), ["the file is empty"]),
    ):
        faults = tf.where(applies, tf.strings.join(words), faults)
    return faults


def describe_damage(files: tf.Tensor) -> tf.Tensor:
    """Say of `files` that their content cannot be decoded, string [batch]."""
    return tf.strings.join([_formats(files), ": damaged or cut off"])


def _formats(files: tf.Tensor) -> tf.Tensor:
    """Name the format that each file begins like; empty where it is none of `_MAGIC`."""
    headers = tf.io.decode_raw(files, tf.uint8, fixed_length=_HEADER_BYTES)
    names = tf.fill(tf.shape(files), "")
    for name, start, magic in _MAGIC:
        begins = tf.equal(headers[:, start : start + len(magic)], list(magic))
        names = tf.where(tf.reduce_all(begins, axis=1), name, names)
    return names


def _are_few(sides: tf.Tensor) -> tf.Tensor:
    # The product of two numbers of 32 bits could overflow.
    return tf.reduce_prod(tf.minimum(sides, 2**31), axis=1) <= MAX_MPIXELS * 10**6


def _read_sides(files: tf.Tensor) -> tf.Tensor:
    """Return width and height that each header states, int64 [batch, 2].

    They are 0 for unknown formats, and -1 for a JPEG whose header is not in order.

    Sources: PNG (third edition), 11.2.1; GIF89a, 18; BITMAPINFOHEADER of BMP.
    """
    big = tf.io.decode_raw(files, tf.int32, little_endian=False, fixed_length=_HEADER_BYTES)
    little = tf.io.decode_raw(files, tf.uint16, fixed_length=_HEADER_BYTES)
    gif = tf.cast(little[:, 3:5], tf.int64)
    # Rows from top to bottom are a negative height.
    bmp = tf.bitcast(tf.reshape(little[:, 9:13], [-1, 2, 2]), tf.int32)
    bmp = tf.abs(tf.cast(bmp, tf.int64))
    png = tf.cast(tf.bitcast(big[:, 4:6], tf.uint32), tf.int64)
    is_jpeg = tf.equal(tf.bitwise.right_shift(big[:, 0], 8), -0x2701)
    jpeg = tf.cond(tf.reduce_any(is_jpeg), lambda: _read_jpeg_sides(files), lambda: png)
    sides = tf.zeros_like(png)
    for found, stated in (
        (is_jpeg, jpeg),
        (tf.equal(big[:, 0], -0x76AFB1B9), png),
        (tf.equal(big[:, 0], 0x47494638), gif),
        (tf.equal(tf.bitwise.right_shift(big[:, 0], 16), 0x424D), bmp),
    ):
        sides = tf.where(found[:, tf.newaxis], stated, sides)
    return sides


def _read_jpeg_sides(files: tf.Tensor) -> tf.Tensor:
    """Return width and height in the frame header, ITU-T T.81, B.2.2; -1 without one."""

    def is_frame(heads: tf.Tensor) -> tf.Tensor:
        marker = heads[:, 1]
        others = tf.reduce_any(tf.equal(heads[:, 1:2], [0xC4, 0xC8, 0xCC]), axis=1)
        return (marker >= 0xC0) & (marker <= 0xCF) & tf.logical_not(others)

    heads, _ = find_segments(files, is_frame)
    sides = tf.stack([heads[:, 7] * 256 + heads[:, 8], heads[:, 5] * 256 + heads[:, 6]], axis=1)
    return tf.cast(tf.where(tf.equal(heads[:, :1], 0xFF), sides, -1), tf.int64)
