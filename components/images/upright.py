"""Orientation in TensorFlow's graph: which way up an encoded image is, and how to turn its pixels.

Ingest stores images upright; these operations are for files that come from elsewhere, as the served
model's do. Most files say nothing: that is found out for the whole batch at once.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from components.images.canonical_form import SEARCHED_BYTES
from components.images.jpeg_segments import HEAD_BYTES, find_segments

# A file of 110 KB takes 20 µs to search so.
_HEAD = SEARCHED_BYTES

_JPEG_EXIF, _PNG_EXIF, _XMP = r"Exif\x00\x00", "eXIf", "tiff:Orientation"
_XMP_VALUE = r"(?s)\A\C*?tiff:Orientation(?:=\"|>)([1-8])\C*\z"

_ORIENTATION_TAG = 0x0112
_BYTE, _SHORT, _LONG = 1, 3, 4
_ENTRY_BYTES = 12
# What a segment of a JPEG has room for.
_MOST_EXIF = 65_536
# More tags than any writer of EXIF data has.
_MOST_ENTRIES = 1024


# Hardly ever run, and so left out of the graphs around it: tf.data makes those ready at every call.
_apart = functools.partial(
    tf.function, autograph=False, experimental_attributes={"_noinline": True}
)


def read_orientations(encoded: tf.Tensor) -> tf.Tensor:
    """Return the orientation of each image of `encoded`, string [batch], int32 [batch] of 1 to 8.

    It is read from EXIF data in JPEG and PNG files, else from XMP; 1 without either.

    Source: CIPA DC-008 (EXIF 2.32), 4.5.4 and 4.6; PNG (third edition), 11.3.4.5.
    """
    heads = tf.strings.substr(encoded, 0, _HEAD)
    stated = (
        _contains(heads, _JPEG_EXIF)
        | _contains(heads, _XMP)
        | _contains(tf.where(_is_png(encoded), encoded, ""), _PNG_EXIF)
    )
    return tf.cond(
        tf.reduce_any(stated),
        lambda: _read_stated(encoded, stated),
        lambda: tf.ones_like(stated, tf.int32),
    )


@_apart
def _read_stated(encoded: tf.Tensor, stated: tf.Tensor) -> tf.Tensor:
    """Read the orientations of the files that are `stated`, bool [batch], to have any."""
    places = tf.where(stated)
    files = tf.boolean_mask(encoded, stated)
    starts = tf.where(_is_png(files), _find_in_png(files), _find_in_jpeg(files))
    spec = tf.TensorSpec([], tf.int32)
    found = tf.map_fn(_read_exif, (files, starts), fn_output_signature=spec)
    found = tf.where(found > 0, found, _read_xmp(files))
    return tf.tensor_scatter_nd_update(tf.ones_like(stated, tf.int32), places, found)


def _is_png(files: tf.Tensor) -> tf.Tensor:
    return tf.equal(tf.strings.substr(files, 0, 4), b"\x89PNG")


def _contains(texts: tf.Tensor, pattern: str) -> tf.Tensor:
    # A plain text is found eight times as fast in this way as by a match of the whole.
    without = tf.strings.regex_replace(texts, pattern, "", replace_global=False)
    return tf.strings.length(without) < tf.strings.length(texts)


@_apart
def turn_upright(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Turn and mirror [height, width, channels] as `orientation`, 1 to 8, says that it is seen."""

    def among(*numbers: int) -> tf.Tensor:
        return tf.reduce_any(tf.equal(orientation, numbers))

    image = tf.cond(among(5, 6, 7, 8), lambda: tf.transpose(image, [1, 0, 2]), lambda: image)
    image = tf.cond(among(2, 3, 6, 7), lambda: tf.reverse(image, [1]), lambda: image)
    return tf.cond(among(3, 4, 7, 8), lambda: tf.reverse(image, [0]), lambda: image)


def _find_in_png(files: tf.Tensor) -> tf.Tensor:
    """Return where the EXIF data of each PNG begin, or 0."""
    before = tf.strings.split(files, _PNG_EXIF, maxsplit=1)
    places = tf.strings.length(before[:, :1].flat_values) + len(_PNG_EXIF)
    return tf.where(before.row_lengths() > 1, places, 0)


def _find_in_jpeg(files: tf.Tensor) -> tf.Tensor:
    """Return where the EXIF data of each JPEG begin, or 0."""

    def is_exif(heads: tf.Tensor) -> tf.Tensor:
        said = tf.reduce_all(tf.equal(heads[:, 4:10], list(b"Exif\0\0")), axis=1)
        return said & tf.equal(heads[:, 1], 0xE1)

    places = find_segments(files, is_exif)[1]
    return tf.where(places > 0, places + HEAD_BYTES, 0)


def _read_exif(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """Return the orientation that the EXIF data say which begin somewhere in a file, or 0."""
    file, start = row
    tiff = tf.io.decode_raw(tf.strings.substr(file, start, _MOST_EXIF), tf.uint8)
    return tf.where((start > 0) & (tf.size(tiff) > 8), _read_tiff(tiff), 0)


def _read_tiff(tiff: tf.Tensor) -> tf.Tensor:
    """Return the orientation in the first directory of EXIF data, uint8 [bytes]; 0 without one."""
    little = tf.reduce_all(tf.equal(tiff[:1], ord("I")))
    directory = _number(tiff, tf.constant(4), 4, little)
    count = tf.minimum(_number(tiff, directory, 2, little), _MOST_ENTRIES)
    places = directory + 2 + _ENTRY_BYTES * tf.range(count)
    kinds = _number(tiff, places + 2, 2, little)
    is_it = tf.equal(_number(tiff, places, 2, little), _ORIENTATION_TAG)
    is_it &= tf.equal(_number(tiff, places + 4, 4, little), 1)
    value = tf.where(
        tf.equal(kinds, _SHORT),
        _number(tiff, places + 8, 2, little),
        tf.where(tf.equal(kinds, _LONG), _number(tiff, places + 8, 4, little), 0),
    )
    value = tf.where(tf.equal(kinds, _BYTE), _number(tiff, places + 8, 1, little), value)
    return tf.reduce_max(tf.where(is_it & (value >= 1) & (value <= 8), value, 0), axis=0)


def _read_xmp(files: tf.Tensor) -> tf.Tensor:
    digits = tf.strings.regex_replace(tf.strings.substr(files, 0, _HEAD), _XMP_VALUE, r"\1")
    return tf.strings.to_number(
        tf.where(tf.equal(tf.strings.length(digits), 1), digits, "1"), tf.int32
    )


def _bytes(content: tf.Tensor, places: tf.Tensor, length: int) -> tf.Tensor:
    """Return `length` bytes at each of `places`, int32 [..., length]; zero outside of `content`."""
    indices = tf.expand_dims(places, -1) + tf.range(length)
    inside = (indices >= 0) & (indices < tf.size(content))
    values = tf.gather(content, tf.where(inside, indices, 0))
    return tf.where(inside, tf.cast(values, tf.int32), 0)


def _number(content: tf.Tensor, places: tf.Tensor, length: int, little: tf.Tensor) -> tf.Tensor:
    """Return the unsigned number of `length` bytes at each of `places`, as int32."""
    values = _bytes(content, places, length)
    values = tf.cond(little, lambda: tf.reverse(values, [-1]), lambda: values)
    powers = tf.constant([256 ** (length - 1 - i) for i in range(length)], tf.int32)
    return tf.reduce_sum(values * powers, axis=-1)
