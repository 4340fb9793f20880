"""Image files to canonical files, and canonical files to pixels, in TensorFlow's graph."""

import math

import tensorflow as tf

from components.images.options import ALIASING, CHANNELS, ImageOptions, TransformConfig
from components.images.upright import read_orientations, turn_upright


def canonicalize(
    encoded: tf.Tensor, config: TransformConfig, *, ingest: ImageOptions | None = None
) -> tf.Tensor:
    """Bring image files to one size and format.

    Args:
        encoded: string [batch], JPEG, PNG, GIF or BMP files of any size; only the first frame of
            an animation is used.
        config: size, format, and how to make other shapes square.
        ingest: how ingest shrinks images; files that it has not seen are shrunk likewise.

    Returns:
        string [batch]: upright JPEG or PNG files of `config.seen_size`, or rows of RGB pixels of
        that size. A JPEG that already has this form is kept byte for byte.
    """
    size = config.seen_size

    # AutoGraph would find nothing to convert, but an eager call would search for each image.
    @tf.autograph.experimental.do_not_convert
    def one(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        file, orientation = row
        image, kept = decode_upright(file, orientation)
        if ingest and ingest.shrink:
            given, smaller = (file, image), tf.reduce_min(tf.shape(image)[:2]) <= ingest.shrink
            file, image = tf.cond(smaller, lambda: given, lambda: _shrink(given[1], ingest))
            kept |= tf.logical_not(smaller)
        right_size = tf.reduce_all(tf.equal(tf.shape(image)[:2], size))
        image = tf.cond(
            right_size, lambda: image, lambda: _resize(image, size=size, fit=config.fit)
        )
        if config.storage in ("png", "raw"):
            return encode(tf.ensure_shape(image, [size, size, CHANNELS]), config)
        # Encoding twice would cost time and quality for nothing.
        return tf.cond(
            tf.io.is_jpeg(file) & right_size & kept, lambda: file, lambda: encode(image, config)
        )

    rows = (encoded, read_orientations(encoded))
    return tf.map_fn(one, rows, fn_output_signature=tf.TensorSpec([], tf.string))


def decode_upright(file: tf.Tensor, orientation: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return uint8 [height, width, 3], upright; and whether the file stores it upright."""
    image = decode_file(file)
    upright = tf.equal(orientation, 1)
    return tf.cond(upright, lambda: image, lambda: turn_upright(image, orientation)), upright


def _shrink(image: tf.Tensor, ingest: ImageOptions) -> tuple[tf.Tensor, tf.Tensor]:
    """Shrink uint8 [height, width, 3] as `transcode.shrink` and `to_jpeg` do.

    Return the JPEG, and its pixels.
    """
    shape = tf.cast(tf.shape(image)[:2], tf.float64)
    factor = tf.reduce_min(shape) / ingest.shrink
    size = tf.maximum(tf.cast(tf.round(shape / factor), tf.int32), ingest.shrink)
    resized = tf.cond(
        factor >= ALIASING,
        lambda: tf.image.resize(image, size, tf.image.ResizeMethod.AREA),
        lambda: tf.image.resize(image, size),
    )
    pixels = tf.saturate_cast(tf.round(resized), tf.uint8)
    file = tf.io.encode_jpeg(pixels, quality=ingest.quality, chroma_downsampling=True)
    return file, decode_jpeg(file)


def encode(image: tf.Tensor, config: TransformConfig) -> tf.Tensor:
    """Encode uint8 [size, size, 3] as a canonical file."""
    if config.storage == "png":
        return tf.io.encode_png(image)
    if config.storage == "raw":
        # No op turns pixels into bytes, but a serialized tensor ends with them (tensor.proto).
        return tf.strings.substr(tf.io.serialize_tensor(image), -image.shape.num_elements(), -1)
    # Full chroma resolution keeps color edges sharp, which matters most in small images.
    return tf.io.encode_jpeg(image, quality=config.quality, chroma_downsampling=False)


def _resize(image: tf.Tensor, *, size: int, fit: str) -> tf.Tensor:
    """Resize uint8 [height, width, 3] to uint8 [size, size, 3], with antialiasing."""
    if fit == "letterbox":
        return _letterbox(image, size)
    if fit == "crop":
        shape = tf.shape(image)
        side = tf.minimum(shape[0], shape[1])
        top, left = (shape[0] - side) // 2, (shape[1] - side) // 2
        image = image[top : top + side, left : left + side]
    resized = tf.image.resize(image, [size, size], antialias=True)
    return tf.saturate_cast(tf.round(resized), tf.uint8)


def _letterbox(image: tf.Tensor, size: int) -> tf.Tensor:
    """Resize the longer side to `size`, and pad the shorter one with the mean color."""
    shape = tf.shape(image)[:2]
    scale = size / tf.reduce_max(shape)
    # An image a thousand times as long as wide keeps at least one pixel.
    inner = tf.maximum(tf.cast(tf.round(tf.cast(shape, tf.float64) * scale), tf.int32), 1)
    resized = tf.round(tf.image.resize(image, inner, antialias=True))
    color = tf.round(tf.reduce_mean(resized, axis=[0, 1]))
    before = (size - inner) // 2
    margins = tf.stack([before, size - inner - before], axis=1)
    padded = tf.pad(resized - color, tf.pad(margins, [[0, 1], [0, 0]])) + color
    return tf.saturate_cast(padded, tf.uint8)


def decode(canonical: tf.Tensor, config: TransformConfig) -> tf.Tensor:
    """Decode canonical files.

    Args:
        canonical: string [batch], from `canonicalize` with the same `config`.
        config: form of the images.

    Returns:
        uint8 [batch, size, size, 3].
    """
    shape = [config.seen_size, config.seen_size, CHANNELS]
    if config.storage == "raw":
        pixels = tf.io.decode_raw(canonical, tf.uint8, fixed_length=math.prod(shape))
        return tf.reshape(pixels, [-1, *shape])

    @tf.autograph.experimental.do_not_convert
    def one(file: tf.Tensor) -> tf.Tensor:
        is_png = config.storage == "png"
        image = tf.io.decode_png(file, channels=CHANNELS) if is_png else decode_jpeg(file)
        return tf.ensure_shape(image, shape)

    return tf.map_fn(one, canonical, fn_output_signature=tf.TensorSpec(shape, tf.uint8))


def decode_file(file: tf.Tensor) -> tf.Tensor:
    """Decode a JPEG, PNG, GIF or BMP as stored, to uint8 [height, width, 3]."""
    image = tf.cond(tf.io.is_jpeg(file), lambda: decode_jpeg(file), lambda: decode_other(file))
    return tf.ensure_shape(image, [None, None, CHANNELS])


def decode_other(file: tf.Tensor) -> tf.Tensor:
    """Decode a PNG, GIF or BMP to uint8 [height, width, 3]."""
    return tf.io.decode_image(file, channels=CHANNELS, expand_animations=False)


def decode_jpeg(file: tf.Tensor) -> tf.Tensor:
    """Decode a JPEG to uint8 [height, width, 3], with the same pixels as other libraries.

    TensorFlow's default is a faster transform, which is several levels off for many pixels.
    """
    return tf.io.decode_jpeg(file, channels=CHANNELS, dct_method="INTEGER_ACCURATE")
