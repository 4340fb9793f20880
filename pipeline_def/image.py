"""Pixels live here only: encoded files to canonical ones, to uint8 images, to augmented images."""

from __future__ import annotations

import tensorflow as tf

CHANNELS = 3


def canonicalize(encoded: tf.Tensor, *, size: int, fit: str, quality: int) -> tf.Tensor:
    """Bring image files to one size and format.

    Args:
        encoded: string [batch], JPEG, PNG, GIF or BMP files of any size.
        size: side of the square result, pixels.
        fit: "crop" cuts the largest central square, "stretch" gives up the aspect ratio.
        quality: of the JPEG, 1 to 100.

    Returns:
        string [batch], JPEG files of size x size. A file that already is one is kept as it is.
    """

    def one(file: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_image(file, channels=CHANNELS, expand_animations=False)
        image.set_shape([None, None, CHANNELS])
        right_size = tf.reduce_all(tf.equal(tf.shape(image)[:2], size))
        # Encoding a second time would cost time and lose quality for nothing.
        return tf.cond(
            tf.logical_and(tf.io.is_jpeg(file), right_size),
            lambda: file,
            lambda: tf.io.encode_jpeg(
                _resize(image, size=size, fit=fit), quality=quality, chroma_downsampling=False
            ),
        )

    return tf.map_fn(one, encoded, fn_output_signature=tf.TensorSpec([], tf.string))


def _resize(image: tf.Tensor, *, size: int, fit: str) -> tf.Tensor:
    """Resize one uint8 image [height, width, 3] to uint8 [size, size, 3], with antialiasing."""
    if fit == "crop":
        shape = tf.shape(image)
        side = tf.minimum(shape[0], shape[1])
        top, left = (shape[0] - side) // 2, (shape[1] - side) // 2
        image = image[top : top + side, left : left + side]
    resized = tf.image.resize(image, [size, size], antialias=True)
    return tf.saturate_cast(tf.round(resized), tf.uint8)


def decode(canonical: tf.Tensor, *, size: int) -> tf.Tensor:
    """Decode canonical files, string [batch], to uint8 images [batch, size, size, 3]."""

    def one(file: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.io.decode_jpeg(file, channels=CHANNELS), [size, size, CHANNELS])

    spec = tf.TensorSpec([size, size, CHANNELS], tf.uint8)
    return tf.map_fn(one, canonical, fn_output_signature=spec)


def channel_sums(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the sums of the values and of their squares, of each channel of each image.

    Args:
        images: uint8 [batch, height, width, 3].

    Returns:
        Two int64 [batch, 3]: exact, so that they add up to the same in whatever order.
    """

    def one(image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        values = tf.cast(image, tf.int64)
        return tf.reduce_sum(values, axis=[0, 1]), tf.reduce_sum(values * values, axis=[0, 1])

    # Image by image: Beam's batches of 1,000 would take gigabytes as 64-bit integers.
    spec = tf.TensorSpec([CHANNELS], tf.int64)
    return tuple(tf.map_fn(one, images, fn_output_signature=(spec, spec)))


def augment(images: tf.Tensor, *, seed: tf.Tensor, shift: int, flip: bool) -> tf.Tensor:
    """Shift each image at random, and mirror half of them; same seed, same pixels.

    Args:
        images: uint8 [batch, height, width, 3].
        seed: int [2], for `tf.random.stateless_uniform`.
        shift: at most this many pixels up, down, left and right; reflection fills the gap.
        flip: mirror left to right with probability 1/2.

    Returns:
        uint8 of the same shape.
    """
    batch, height, width = tf.shape(images)[0], images.shape[1], images.shape[2]
    seeds = tf.random.split(seed, 3)
    limit = 2 * shift + 1
    rows = tf.random.stateless_uniform([batch, 1], seeds[0], maxval=limit, dtype=tf.int32)
    columns = tf.random.stateless_uniform([batch, 1], seeds[1], maxval=limit, dtype=tf.int32)
    columns = columns + tf.range(width)
    if flip:
        mirrored = tf.random.stateless_uniform([batch, 1], seeds[2]) < 0.5
        columns = tf.where(mirrored, columns[:, ::-1], columns)
    margin = [[0, 0], [shift, shift], [shift, shift], [0, 0]]
    padded = tf.pad(images, margin, mode="REFLECT")
    cropped = tf.gather(padded, rows + tf.range(height), axis=1, batch_dims=1)
    return tf.ensure_shape(tf.gather(cropped, columns, axis=2, batch_dims=1), images.shape)
