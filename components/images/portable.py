"""Prepares decoded pixels as `canonical.py` does files, in operations that other runtimes have.

Resizing is two products with matrices whose weights follow from the sizes in the graph: neither
ONNX nor LiteRT has TensorFlow's antialiased `ScaleAndTranslate`.
"""

from collections.abc import Iterable

import tensorflow as tf

from components.images.canonical import encode
from components.images.jpeg_round_trip import round_trip
from components.images.options import ALIASING, CHANNELS, ImageOptions, TransformConfig

# Marker and header of a frame of three components, ITU-T T.81, B.2.2.
_FRAME_BYTES = 19


def prepare(
    pixels: tf.Tensor,
    config: TransformConfig,
    *,
    ingest: ImageOptions | None = None,
    from_jpeg: bool = False,
    antialias: bool = True,
) -> tf.Tensor:
    """Return what the model sees of decoded images.

    Args:
        pixels: uint8 [batch, height, width, 3], upright, of any size.
        config: size, format, and how to make other shapes square.
        ingest: how ingest shrinks images.
        from_jpeg: whether the files were JPEGs, which are not encoded again if they already have
            the stored size; otherwise they are prepared as PNGs.
        antialias: off: resize as many libraries do, which shows what that costs.

    Returns:
        uint8 [batch, size, size, 3], as `decode(canonicalize(files))`.
    """
    images = tf.cast(pixels, tf.float32)
    kept: bool | tf.Tensor = from_jpeg
    if ingest and ingest.shrink:
        smaller = tf.reduce_min(tf.shape(images)[1:3]) <= ingest.shrink
        given = images
        images = tf.cond(smaller, lambda: given, lambda: _shrink(given, ingest))
        kept = smaller if from_jpeg else False
    size = config.stored_size
    resized = _fit(images, size, config.fit, antialias=antialias)
    if config.storage not in ("png", "raw"):
        encoded = round_trip(resized, quality=config.quality, half_chroma=config.chroma == "half")
        right_size = tf.reduce_all(tf.equal(tf.shape(images)[1:3], size))
        resized = tf.cond(right_size & kept, lambda: resized, lambda: encoded)
    middle = slice(config.margin // 2, config.margin // 2 + config.seen_size)
    return tf.cast(resized[:, middle, middle], tf.uint8)


def find_kept(files: Iterable[bytes], config: TransformConfig) -> bool:
    """Say whether any of these canonical files is a JPEG that Transform kept as it found it.

    Files that it encoded begin with the same tables and sizes.
    """
    if config.storage in ("png", "raw"):
        return False
    size = config.stored_size
    black = tf.zeros([size, size, CHANNELS], tf.uint8)
    encoded = encode(black, config).numpy()
    head = encoded[: encoded.index(b"\xff\xc0") + _FRAME_BYTES]
    return not all(file.startswith(head) for file in files)


def _shrink(images: tf.Tensor, ingest: ImageOptions) -> tf.Tensor:
    """Shrink and encode float32 [batch, height, width, 3] as `canonical.py` does."""
    shape = tf.cast(tf.shape(images)[1:3], tf.float64)
    factor = tf.reduce_min(shape) / ingest.shrink
    size = tf.maximum(tf.cast(tf.round(shape / factor), tf.int32), ingest.shrink)
    aliased = factor >= ALIASING
    weights = [
        tf.where(aliased, _area(before, after), _triangle(before, after, antialias=False))
        for before, after in zip(tf.unstack(tf.shape(images)[1:3]), tf.unstack(size), strict=True)
    ]
    resized = tf.round(_resize(images, *weights))
    return round_trip(resized, quality=ingest.quality, half_chroma=True)


def _fit(images: tf.Tensor, size: int, fit: str, *, antialias: bool) -> tf.Tensor:
    """Resize to whole numbers, float32 [batch, size, size, 3]."""
    shape = tf.shape(images)
    if fit == "letterbox":
        resized = _letterbox(images, size, antialias=antialias)
    else:
        if fit == "crop":
            side = tf.minimum(shape[1], shape[2])
            top, left = (shape[1] - side) // 2, (shape[2] - side) // 2
            images = images[:, top : top + side, left : left + side]
            shape = tf.shape(images)
        weights = [_triangle(shape[i], size, antialias=antialias) for i in (1, 2)]
        resized = tf.round(_resize(images, *weights))
    return tf.ensure_shape(tf.clip_by_value(resized, 0, 255), [None, size, size, CHANNELS])


def _letterbox(images: tf.Tensor, size: int, *, antialias: bool) -> tf.Tensor:
    shape = tf.shape(images)[1:3]
    scale = size / tf.reduce_max(shape)
    inner = tf.maximum(tf.cast(tf.round(tf.cast(shape, tf.float64) * scale), tf.int32), 1)
    before = (size - inner) // 2
    # Rows of zeros leave the margins black.
    weights, inside = [], []
    for side, target, margin in zip(*map(tf.unstack, (shape, inner, before)), strict=True):
        row = tf.range(size) - margin
        within = tf.cast((row >= 0) & (row < target), tf.float32)[:, tf.newaxis]
        weights.append(_triangle(side, target, antialias=antialias, rows=row) * within)
        inside.append(within)
    resized = tf.round(_resize(images, *weights))
    total = tf.reduce_sum(resized, axis=[1, 2], keepdims=True)
    color = tf.round(total / tf.cast(tf.reduce_prod(inner), tf.float32))
    mask = (inside[0] * tf.transpose(inside[1]))[tf.newaxis, :, :, tf.newaxis]
    return resized + color * (1 - mask)


def _resize(images: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Multiply with weights [height, before] and [width, before]."""
    shape = tf.shape(images)
    width = tf.shape(columns)[0]
    flat = tf.reshape(images, [-1, shape[1], shape[2] * CHANNELS])
    flat = tf.reshape(tf.matmul(rows, flat), [-1, shape[2], CHANNELS])
    return tf.reshape(tf.matmul(columns, flat), [-1, tf.shape(rows)[0], width, CHANNELS])


def _triangle(
    before: tf.Tensor,
    after: tf.Tensor,
    *,
    antialias: bool,
    rows: tf.Tensor | None = None,
) -> tf.Tensor:
    """Return weights [rows, before] of `tf.image.resize`: a triangle around each pixel's center.

    Without antialiasing it is two pixels wide, with it as wide as two pixels of a smaller image.
    """
    rows = tf.range(after) if rows is None else rows
    # Rounded as in `scale_and_translate_op.cc`.
    scale = 1 / (tf.cast(after, tf.float32) / tf.cast(before, tf.float32))
    centers = (tf.cast(rows, tf.float32) + 0.5) * scale
    places = tf.range(tf.cast(before, tf.float32)) + 0.5
    distances = tf.abs(places - centers[:, tf.newaxis])
    if antialias:
        distances *= 1 / tf.maximum(scale, 1)
    weights = tf.nn.relu(1 - distances)
    return weights * (1 / tf.maximum(tf.reduce_sum(weights, axis=1, keepdims=True), 1e-6))


def _area(before: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
    """Return weights [after, before]: the part of each pixel that lies in the larger one."""
    scale = tf.cast(before, tf.float32) / tf.cast(after, tf.float32)
    start = tf.range(tf.cast(after, tf.float32))[:, tf.newaxis] * scale
    places = tf.range(tf.cast(before, tf.float32))
    end = tf.range(1, tf.cast(after, tf.float32) + 1)[:, tf.newaxis] * scale
    overlap = tf.minimum(places + 1, end) - tf.maximum(places, start)
    return tf.nn.relu(overlap) / scale
