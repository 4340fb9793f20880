"""Prepares decoded pixels as `canonical.py` does files, in operations that other runtimes have.

Resizing adds up pixels by weights that follow from the sizes in the graph: neither ONNX nor LiteRT
has TensorFlow's antialiased `ScaleAndTranslate`. What storing images as JPEG changes is left out:
no other runtime has a JPEG codec.
"""

from functools import partial

import tensorflow as tf

from components.images.options import ALIASING, CHANNELS, ImageOptions, TransformConfig

_Taps = tuple[tf.Tensor, tf.Tensor]
"""int32 [after, taps], numbers of the pixels along a side that each new one sees, and float32
[after, taps], their weights."""


def prepare(pixels: tf.Tensor, config: TransformConfig, *, ingest: ImageOptions) -> tf.Tensor:
    """Return what the model sees of decoded images.

    Args:
        pixels: uint8 [batch, height, width, 3], upright, of any size.
        config: size, format, and how to make other shapes square.
        ingest: how ingest shrinks images.

    Returns:
        uint8 [batch, size, size, 3], as `decode(canonicalize(files))`, but for what storing the
        images as JPEG changes.
    """
    images = tf.cast(pixels, tf.float32)
    if ingest.shrink:
        smaller = tf.reduce_min(tf.shape(images)[1:3]) <= ingest.shrink
        given = images
        images = tf.cond(smaller, lambda: given, lambda: _shrink(given, ingest))
    return tf.cast(_fit(images, config.seen_size, config.fit), tf.uint8)


def _shrink(images: tf.Tensor, ingest: ImageOptions) -> tf.Tensor:
    """Shrink float32 [batch, height, width, 3] as `canonical.py` does, to whole numbers."""
    shape = tf.cast(tf.shape(images)[1:3], tf.float64)
    factor = tf.reduce_min(shape) / ingest.shrink
    size = tf.maximum(tf.cast(tf.round(shape / factor), tf.int32), ingest.shrink)
    aliased, before = factor >= ALIASING, tf.shape(images)[1:3]
    taps = []
    for axis in (0, 1):
        side = (before[axis], size[axis])
        area, triangle = partial(_area, *side), partial(_triangle, *side, antialias=False)
        # tf2onnx does not know the rank of what a condition returns.
        numbers, weights = tf.cond(aliased, area, triangle)
        shape = [size[axis], -1]
        taps.append((tf.reshape(numbers, shape), tf.reshape(weights, shape)))
    rows, columns = taps
    # Columns first, unlike the antialiased kernel, and one division: `resize_area_op.cc`.
    resized = _weigh(_weigh(images, columns, axis=2), rows, axis=1)
    pixels = tf.reduce_prod(tf.cast(before, tf.float32) / tf.cast(size, tf.float32))
    return tf.round(resized * tf.where(aliased, 1 / pixels, 1))


def _fit(images: tf.Tensor, size: int, fit: str) -> tf.Tensor:
    """Resize to whole numbers, float32 [batch, size, size, 3]."""
    shape = tf.shape(images)
    if fit == "letterbox":
        resized = _letterbox(images, size)
    else:
        if fit == "crop":
            side = tf.minimum(shape[1], shape[2])
            top, left = (shape[1] - side) // 2, (shape[2] - side) // 2
            images = images[:, top : top + side, left : left + side]
            shape = tf.shape(images)
        weights = [_triangle(shape[i], size) for i in (1, 2)]
        resized = tf.round(_resize(images, *weights))
    return tf.ensure_shape(tf.clip_by_value(resized, 0, 255), [None, size, size, CHANNELS])


def _letterbox(images: tf.Tensor, size: int) -> tf.Tensor:
    shape = tf.shape(images)[1:3]
    scale = size / tf.reduce_max(shape)
    inner = tf.maximum(tf.cast(tf.round(tf.cast(shape, tf.float64) * scale), tf.int32), 1)
    before = (size - inner) // 2
    # Rows of zeros leave the margins black.
    weights, inside = [], []
    for side, target, margin in zip(*map(tf.unstack, (shape, inner, before)), strict=True):
        row = tf.range(size) - margin
        within = tf.cast((row >= 0) & (row < target), tf.float32)[:, tf.newaxis]
        numbers, weight = _triangle(side, target, rows=row)
        weights.append((numbers, weight * within))
        inside.append(within)
    resized = tf.round(_resize(images, *weights))
    total = tf.reduce_sum(resized, axis=[1, 2], keepdims=True)
    color = tf.round(total / tf.cast(tf.reduce_prod(inner), tf.float32))
    mask = (inside[0] * tf.transpose(inside[1]))[tf.newaxis, :, :, tf.newaxis]
    return resized + color * (1 - mask)


def _resize(images: tf.Tensor, rows: _Taps, columns: _Taps) -> tf.Tensor:
    """Weigh rows, then columns."""
    return _weigh(_weigh(images, rows, axis=1), columns, axis=2)


def _weigh(images: tf.Tensor, taps: _Taps, *, axis: int) -> tf.Tensor:
    """Add up weighted pixels along an axis.

    One tap after the other, each product rounded, as TensorFlow's kernel does: a matrix product
    rounds some halves the other way, and JPEG spreads them over a block. OpenVINO converts no loop.
    """
    numbers, weights = taps
    last = tf.gather(tf.shape(weights), 1) - 1
    for place in range(2, 5 - axis):
        weights = tf.expand_dims(weights, place)
    sums = tf.cumsum(tf.gather(images, numbers, axis=axis) * weights, axis + 1)
    return tf.gather(sums, last, axis=axis + 1)


def _triangle(
    before: tf.Tensor, after: tf.Tensor, *, antialias: bool = True, rows: tf.Tensor | None = None
) -> _Taps:
    """Return the taps of `tf.image.resize`: a triangle around each pixel's center.

    Without antialiasing it is two pixels wide, with it as wide as two pixels of a smaller image.
    """
    rows = tf.range(after) if rows is None else rows
    # Rounded and added up as in `scale_and_translate_op.cc`.
    before = tf.cast(before, tf.float32)
    factor = tf.cast(tf.cast(after, tf.float32) / before, tf.float64)
    # Without the casts, TensorFlow would simplify both quotients to one.
    scale = tf.cast(1 / factor, tf.float32)
    radius = tf.maximum(scale, 1) if antialias else tf.constant(1.0)
    centers = (tf.cast(rows, tf.float32)[:, tf.newaxis] + 0.5) * scale
    first = tf.maximum(tf.math.ceil(centers - radius - 0.5), 0)
    places = first + tf.range(2 * tf.math.ceil(radius) + 1)
    weights = tf.nn.relu(1 - tf.abs(places + 0.5 - centers) * (1 / radius))
    weights *= tf.cast(places < before, tf.float32)
    total = tf.cumsum(weights, axis=1)[:, -1:]
    numbers = tf.cast(tf.minimum(places, before - 1), tf.int32)
    return numbers, weights * (1 / tf.maximum(total, 1e-6))


def _area(before: tf.Tensor, after: tf.Tensor) -> _Taps:
    """Return the taps of the pixels that lie in each larger one, weighted by the parts in it."""
    scale = tf.cast(before, tf.float32) / tf.cast(after, tf.float32)
    rows = tf.range(tf.cast(after, tf.float32))[:, tf.newaxis]
    start, end = rows * scale, (rows + 1) * scale
    places = tf.floor(start) + tf.range(tf.math.ceil(scale) + 1)
    overlap = tf.minimum(places + 1, end) - tf.maximum(places, start)
    return tf.minimum(tf.cast(places, tf.int32), before - 1), tf.nn.relu(overlap)
