"""Decodes a batch of files in the graph, so that a bad file costs no other file its prediction.

A graph cannot catch an error, but a tf.data pipeline within it can skip elements that fail. Headers
tell beforehand which files are too large or in another format.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from components.images.upright import find_segments

# Largest file and image that are decoded; a pixel takes three bytes of memory.
_MAX_MIB = 32
_MAX_MPIXELS = 50

# First bytes of each format, with their offset. TensorFlow decodes the first four.
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
# Files decoded in parallel when each is decoded by itself, as in `tf.map_fn`.
_PARALLEL = 10


class Decoded(NamedTuple):
    """The decoded images of a batch of files."""

    images: tf.Tensor
    """uint8 [batch, size, size, 3]; black for a file that was not decoded, or if there is none."""
    errors: tf.Tensor
    """string [batch], why a file was not decoded; empty if it was."""


def decode_files(files: tf.Tensor, decode: Callable[[tf.Tensor], tf.Tensor], size: int) -> Decoded:
    """Decode the good files of a batch.

    Args:
        files: string [batch].
        decode: string [n] → uint8 [n, size, size, 3]; fails if any file cannot be decoded.
        size: side of the images in pixels.
    """
    images = _decode_together(files, decode, size)

    def all_good() -> Decoded:
        return Decoded(images, tf.fill(tf.shape(files), ""))

    # A function that is not inlined costs nothing unless it is called.
    @tf.function(autograph=False, experimental_attributes={"_noinline": True})
    def one_by_one() -> Decoded:
        return _decode_each(files, decode, size)

    return Decoded(*tf.cond(tf.size(images) > 0, all_good, one_by_one))


def _decode_together(
    files: tf.Tensor, decode: Callable[[tf.Tensor], tf.Tensor], size: int
) -> tf.Tensor:
    """Decode all files at once, the fast way for good ones; return no image if that fails."""
    sides = _read_sides(files)
    small = (tf.strings.length(files) <= _MAX_MIB * 2**20) & _have_few_pixels(sides)
    all_sound = tf.reduce_all(small & tf.reduce_all(sides >= 0, axis=1))
    attempted = tf.cond(all_sound, lambda: files, lambda: files[:0])
    attempt = tf.data.Dataset.from_tensors(attempted).map(decode).ignore_errors()
    nothing = tf.data.Dataset.from_tensors(tf.zeros([0, size, size, 3], tf.uint8))
    return _run(attempt.concatenate(nothing).take(1))


def _decode_each(files: tf.Tensor, decode: Callable[[tf.Tensor], tf.Tensor], size: int) -> Decoded:
    """Decode each file by itself."""
    errors = _find_errors(files)
    numbers = tf.where(tf.equal(errors, ""))[:, 0]
    candidates = (numbers, tf.gather(files, numbers))

    def one(number: tf.Tensor, file: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return number, decode(file[tf.newaxis])[0]

    decoded = tf.data.Dataset.from_tensor_slices(candidates).map(one, _PARALLEL).ignore_errors()
    # An image at the end makes sure that there is a batch.
    black = tf.zeros([size, size, 3], tf.uint8)
    last = tf.data.Dataset.from_tensors((tf.constant(-1, tf.int64), black))
    batch = decoded.concatenate(last).batch(tf.size(files, tf.int64) + 1)
    indices, images = _run(batch)
    rows = indices[:-1, tf.newaxis]
    errors = tf.where(tf.equal(errors, ""), _describe_damage(files), errors)
    errors = tf.tensor_scatter_nd_update(errors, rows, tf.fill(tf.shape(rows)[:1], ""))
    # TensorFlow's fused convolutions fail without an image.
    shape = tf.concat([tf.maximum(tf.shape(files, tf.int64), 1), [size, size, 3]], axis=0)
    every = tf.scatter_nd(rows, images[:-1], shape)
    return Decoded(tf.ensure_shape(every, [None, size, size, 3]), errors)


def _run(dataset: tf.data.Dataset) -> tf.Tensor:
    """Return the only element of `dataset`, without optimizations that take longer than it does."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    options.experimental_warm_start = False
    return dataset.with_options(options).get_single_element()


def _find_errors(files: tf.Tensor) -> tf.Tensor:
    """Return why the header of each file forbids decoding it, string [batch], or ""."""
    bytes_, formats, sides = tf.strings.length(files), _find_formats(files), _read_sides(files)
    large = tf.logical_not(_have_few_pixels(sides))
    decoded = tf.reduce_any(tf.equal(formats[:, tf.newaxis], _DECODED), axis=1)
    shape = tf.strings.reduce_join(tf.strings.as_string(sides), axis=1, separator=" x ")
    mebibytes = tf.strings.as_string(tf.cast(bytes_, tf.float32) / 2**20, precision=1)
    errors = tf.fill(tf.shape(files), "")
    # The last one that applies wins.
    for applies, words in (
        (large, [shape, f" pixels exceed {_MAX_MPIXELS} million"]),
        (sides[:, 0] < 0, [_describe_damage(files)]),
        (bytes_ > _MAX_MIB * 2**20, [mebibytes, f" MiB exceeds {_MAX_MIB} MiB"]),
        (tf.logical_not(decoded), [formats, " is not supported: convert it to PNG or JPEG"]),
        (tf.equal(formats, ""), ["not an image: neither JPEG, PNG, GIF nor BMP"]),
        (tf.equal(bytes_, 0), ["the file is empty"]),
    ):
        errors = tf.where(applies, tf.strings.join(words), errors)
    return errors


def _describe_damage(files: tf.Tensor) -> tf.Tensor:
    return tf.strings.join([_find_formats(files), ": damaged or cut off"])


def _find_formats(files: tf.Tensor) -> tf.Tensor:
    """Return the format of each file by its first bytes; empty if unknown."""
    headers = tf.io.decode_raw(files, tf.uint8, fixed_length=_HEADER_BYTES)
    names = tf.fill(tf.shape(files), "")
    for name, start, magic in _MAGIC:
        begins = tf.equal(headers[:, start : start + len(magic)], list(magic))
        names = tf.where(tf.reduce_all(begins, axis=1), name, names)
    return names


def _have_few_pixels(sides: tf.Tensor) -> tf.Tensor:
    # The product of two numbers of 32 bits could overflow.
    return tf.reduce_prod(tf.minimum(sides, 2**31), axis=1) <= _MAX_MPIXELS * 10**6


def _read_sides(files: tf.Tensor) -> tf.Tensor:
    """Return width and height from each header, int64 [batch, 2].

    They are 0 for unknown formats, and -1 for a JPEG with a broken header.

    Sources: PNG (third edition), 11.2.1; GIF89a, 18; BITMAPINFOHEADER of BMP.
    """
    big = tf.io.decode_raw(files, tf.int32, little_endian=False, fixed_length=_HEADER_BYTES)
    little = tf.io.decode_raw(files, tf.uint16, fixed_length=_HEADER_BYTES)
    gif = tf.cast(little[:, 3:5], tf.int64)
    # A negative height means rows from top to bottom.
    bmp = tf.bitcast(tf.reshape(little[:, 9:13], [-1, 2, 2]), tf.int32)
    bmp = tf.abs(tf.cast(bmp, tf.int64))
    png = tf.cast(tf.bitcast(big[:, 4:6], tf.uint32), tf.int64)
    is_jpeg = tf.equal(tf.bitwise.right_shift(big[:, 0], 8), -0x2701)
    jpeg = tf.cond(tf.reduce_any(is_jpeg), lambda: _read_jpeg_sides(files), lambda: png)
    sides = tf.zeros_like(png)
    for is_format, stated in (
        (is_jpeg, jpeg),
        (tf.equal(big[:, 0], -0x76AFB1B9), png),
        (tf.equal(big[:, 0], 0x47494638), gif),
        (tf.equal(tf.bitwise.right_shift(big[:, 0], 16), 0x424D), bmp),
    ):
        sides = tf.where(is_format[:, tf.newaxis], stated, sides)
    return sides


def _read_jpeg_sides(files: tf.Tensor) -> tf.Tensor:
    """Return width and height from the frame header, ITU-T T.81, B.2.2; -1 without one."""

    def is_frame(heads: tf.Tensor) -> tf.Tensor:
        marker = heads[:, 1]
        others = tf.reduce_any(tf.equal(heads[:, 1:2], [0xC4, 0xC8, 0xCC]), axis=1)
        return (marker >= 0xC0) & (marker <= 0xCF) & tf.logical_not(others)

    heads, _ = find_segments(files, is_frame)
    sides = tf.stack([heads[:, 7] * 256 + heads[:, 8], heads[:, 5] * 256 + heads[:, 6]], axis=1)
    return tf.cast(tf.where(tf.equal(heads[:, :1], 0xFF), sides, -1), tf.int64)
