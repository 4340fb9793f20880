"""What keeps the served model from decoding a file, told in the graph from its header alone."""

from __future__ import annotations

import tensorflow as tf

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


def find_faults(files: tf.Tensor) -> tf.Tensor:
    """Say why each of `files`, string [batch], is not decoded: string [batch], empty if it may be.

    Raises:
        InvalidArgumentError: the header of a JPEG cannot be read.
    """
    bytes_, sides = tf.strings.length(files), _read_sides(files)
    formats = _formats(files)
    known = tf.not_equal(formats, "")
    decoded = tf.reduce_any(tf.equal(formats[:, tf.newaxis], _DECODED), axis=1)
    shape = tf.strings.reduce_join(tf.strings.as_string(sides), axis=1, separator=" x ")
    mebibytes = tf.strings.as_string(tf.cast(bytes_, tf.float32) / 2**20, precision=1)
    faults = tf.fill(tf.shape(files), "")
    # The last one that applies is what is said.
    for applies, words in (
        (_has_too_many_pixels(sides), [shape, f" pixels, above {MAX_MPIXELS} million"]),
        (bytes_ > MAX_MIB * 2**20, [mebibytes, f" MiB, above {MAX_MIB} MiB"]),
        (tf.logical_not(decoded), [formats, " is not decoded: convert it to PNG or JPEG"]),
        (tf.logical_not(known), ["not an image: neither JPEG, PNG, GIF nor BMP"]),
        (tf.equal(bytes_, 0), ["the file is empty"]),
    ):
        faults = tf.where(applies, tf.strings.join(words), faults)
    return faults


def all_within_limits(files: tf.Tensor) -> tf.Tensor:
    """Say whether none of `files` is too large, in bytes or pixels, to be decoded.

    Raises:
        InvalidArgumentError: the header of a JPEG cannot be read.
    """
    too_large = _has_too_many_pixels(_read_sides(files))
    return tf.logical_not(tf.reduce_any(too_large | (tf.strings.length(files) > MAX_MIB * 2**20)))


def describe_damage(files: tf.Tensor) -> tf.Tensor:
    """Say of `files` that their content cannot be decoded, string [batch]."""
    return tf.strings.join([_formats(files), ": damaged or cut off"])


def _headers(files: tf.Tensor) -> tf.Tensor:
    """Return the first bytes of each file, int64 [batch, 32], zero where it ends before."""
    headers = tf.io.decode_raw(files, tf.uint8, fixed_length=_HEADER_BYTES)
    return tf.cast(headers, tf.int64)


def _formats(files: tf.Tensor) -> tf.Tensor:
    """Name the format that each file begins like; empty where it is none of `_MAGIC`."""
    headers = _headers(files)
    names = tf.fill(tf.shape(files), "")
    for name, start, magic in _MAGIC:
        names = tf.where(_has(headers, start, magic), name, names)
    return names


def _has(headers: tf.Tensor, start: int, magic: bytes) -> tf.Tensor:
    return tf.reduce_all(tf.equal(headers[:, start : start + len(magic)], list(magic)), axis=1)


def _has_too_many_pixels(sides: tf.Tensor) -> tf.Tensor:
    # Two sides of 32 bits each could overflow.
    return tf.reduce_prod(tf.minimum(sides, 2**31 - 1), axis=1) > MAX_MPIXELS * 10**6


def _read_sides(files: tf.Tensor) -> tf.Tensor:
    """Return width and height that each header states, int64 [batch, 2]; 0 of unknown formats.

    Sources: PNG (third edition), 11.2.1; GIF89a, 18; BITMAPINFOHEADER of BMP.
    """
    headers = _headers(files)

    def number(*places: int) -> tf.Tensor:
        """Return the unsigned number at `places`, its highest byte first."""
        powers = tf.constant([256**i for i in reversed(range(len(places)))], tf.int64)
        return tf.reduce_sum(tf.gather(headers, places, axis=1) * powers, axis=1)

    def jpeg(file: tf.Tensor) -> tf.Tensor:
        return tf.cond(
            tf.io.is_jpeg(file),
            lambda: tf.cast(tf.io.extract_jpeg_shape(file)[1::-1], tf.int64),
            lambda: tf.zeros([2], tf.int64),
        )

    sides = tf.map_fn(jpeg, files, fn_output_signature=tf.TensorSpec([2], tf.int64))
    of_others = {
        "PNG": [number(16, 17, 18, 19), number(20, 21, 22, 23)],
        "GIF": [number(7, 6), number(9, 8)],
        "BMP": [_absolute(number(21, 20, 19, 18)), _absolute(number(25, 24, 23, 22))],
    }
    for name, start, magic in _MAGIC:
        if name in of_others:
            found = _has(headers, start, magic)[:, tf.newaxis]
            sides = tf.where(found, tf.stack(of_others[name], axis=1), sides)
    return sides


def _absolute(number: tf.Tensor) -> tf.Tensor:
    """Return a number of 32 bits without its sign; it is negative where rows go downwards."""
    return tf.minimum(number, 2**32 - number)
