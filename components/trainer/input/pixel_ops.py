"""Random numbers, geometry and colors of a batch, as one warp and one matrix per image.

Measurements in comments are for 128 images of 224 pixels on 2 CPU cores.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from components.trainer.config.input import AugmentationConfig

# Weight of each channel in gray: ITU-R BT.601, as in Pillow and torchvision.
_LUMA = (0.299, 0.587, 0.114)
_LOG_ASPECT = math.log(4 / 3)


class AugmentationRandom(NamedTuple):
    """Random numbers in [0, 1), float32 [batch] each.

    All are drawn, used or not, so that one op does not change the numbers of another; append new
    ones at the end.
    """

    shift_y: tf.Tensor
    shift_x: tf.Tensor
    flip: tf.Tensor
    crop_area: tf.Tensor
    crop_aspect: tf.Tensor
    crop_y: tf.Tensor
    crop_x: tf.Tensor
    rotation: tf.Tensor
    brightness: tf.Tensor
    contrast: tf.Tensor
    saturation: tf.Tensor
    hue: tf.Tensor
    cutout_y: tf.Tensor
    cutout_x: tf.Tensor
    operation: tf.Tensor
    strength: tf.Tensor


def draw_numbers(batch: tf.Tensor, seed: tf.Tensor) -> AugmentationRandom:
    """Draw the numbers of `batch` images by `seed`, int [2]."""
    # One kernel, instead of one for each name.
    numbers = tf.random.stateless_uniform([len(AugmentationRandom._fields), batch], seed)
    return AugmentationRandom(*tf.unstack(numbers))


def _signed(number: tf.Tensor, limit: float) -> tf.Tensor:
    """Scale a number in [0, 1) to the range from -limit to limit."""
    return (2 * number - 1) * limit


# Operations of `augmentation.policy`, and their effect at the highest strength, either way: columns
# per row, rows per column, parts of `_REACH`, radians, and what is added to a factor of 1. They are
# those of the wide space of Müller and Hutter (2021) that change positions or colors by a matrix.
_OPERATIONS = {
    "identity": 0.0,
    "shear_x": 0.99,
    "shear_y": 0.99,
    "translate_x": 1.0,
    "translate_y": 1.0,
    "rotate": math.radians(135),
    "brightness": 0.99,
    "contrast": 0.99,
    "saturation": 0.99,
}
# Translation, as a fraction of the side and in pixels: 32 would move small images out of sight.
_REACH = (150 / 331, 32)


def _draw_amounts(
    random: AugmentationRandom, config: AugmentationConfig
) -> dict[str, tf.Tensor | float]:
    """Return operation → amount for each image, [batch]: 0 for all but one of them."""
    if config.policy == "none":
        return dict.fromkeys(_OPERATIONS, 0.0)
    kind = tf.cast(random.operation * len(_OPERATIONS), tf.int32)
    return {
        name: tf.where(kind == number, _signed(random.strength, most), 0.0)
        for number, (name, most) in enumerate(_OPERATIONS.items())
    }


def apply_geometry(
    images: tf.Tensor, random: AugmentationRandom, config: AugmentationConfig
) -> tf.Tensor:
    """Shift, crop, rotate, flip and distort; exact if that only moves whole pixels."""
    _, height, width, _ = images.shape
    limit_y, limit_x = round(config.shift * height), round(config.shift * width)
    down, right = _to_pixels(random.shift_y, limit_y), _to_pixels(random.shift_x, limit_x)
    mirrored = random.flip < (0.5 if config.flip else 0)
    if config.policy != "none" or config.rotation or config.min_crop_area < 1:
        amounts = _draw_amounts(random, config)
        size = tf.constant([width, height], tf.float32)
        scale = _crop_size(random, config.min_crop_area)
        corner = (tf.stack([random.crop_x, random.crop_y], axis=1) - 0.5) * (1 - scale) * size
        offset = corner + tf.cast(tf.stack([right, down], axis=1), tf.float32)
        angle = _signed(random.rotation, math.radians(config.rotation)) + amounts["rotate"]
        matrix = _rotation(angle, mirrored) * scale[:, :, None]
        if config.policy == "none":
            return _warp(images, matrix, offset=offset)
        reach = tf.minimum(_REACH[0] * size, _REACH[1])
        offset += tf.stack([amounts["translate_x"], amounts["translate_y"]], axis=1) * reach
        one = tf.ones_like(angle)
        shear = tf.stack([one, amounts["shear_x"], amounts["shear_y"], one], axis=1)
        return _warp_on_mean_color(images, tf.reshape(shear, [-1, 2, 2]) @ matrix, offset=offset)
    if config.flip or limit_y or limit_x:
        return _move(images, mirrored, down=down, right=right)
    return images


def _to_pixels(number: tf.Tensor, limit: int) -> tf.Tensor:
    """Scale a number in [0, 1) to whole pixels, int32 from -limit to limit."""
    return tf.cast(number * (2 * limit + 1), tf.int32) - limit


def _move(
    images: tf.Tensor, mirrored: tf.Tensor, *, down: tf.Tensor, right: tf.Tensor
) -> tf.Tensor:
    """Shift and flip by moving whole pixels; reflect the image at its edges."""
    _, height, width, channels = images.shape
    rows = _reflected(down[:, None] + tf.range(height), height)
    columns = _reflected(right[:, None] + tf.range(width), width)
    columns = tf.where(mirrored[:, None], columns[:, ::-1], columns)
    # One gather of pixels by their position in the batch: 25 ms. Padding and two gathers: 133 ms,
    # ImageProjectiveTransformV3: 90 ms.
    first = tf.range(tf.shape(images)[0])[:, None] * height
    positions = ((first + rows) * width)[:, :, None] + columns[:, None, :]
    return tf.gather(tf.reshape(images, [-1, channels]), positions)


def _reflected(positions: tf.Tensor, size: int) -> tf.Tensor:
    """Reflect positions from -size + 1 to 2 * size - 2 into the image."""
    return size - 1 - tf.abs(size - 1 - tf.abs(positions))


def _crop_size(random: AugmentationRandom, min_area: float) -> tf.Tensor:
    """Return width and height of the crop, float32 [batch, 2], as fractions of the image.

    Area and aspect ratio are uniform and log-uniform, as in Szegedy et al. (2015), among those that
    fit; torchvision draws again instead.
    """
    area = min_area + random.crop_area * (1 - min_area)
    aspect = tf.exp(_signed(random.crop_aspect, 1) * tf.minimum(-tf.math.log(area), _LOG_ASPECT))
    return tf.sqrt(tf.stack([area * aspect, area / aspect], axis=1))


def _rotation(angle: tf.Tensor, mirrored: tf.Tensor) -> tf.Tensor:
    """Return matrices from flipped and rotated to upright pixels, [batch, 2, 2], x first."""
    cos, sin, mirror = tf.cos(angle), tf.sin(angle), tf.where(mirrored, -1.0, 1.0)
    return tf.reshape(tf.stack([cos * mirror, -sin, sin * mirror, cos], axis=1), [-1, 2, 2])


def _warp_on_mean_color(images: tf.Tensor, matrix: tf.Tensor, *, offset: tf.Tensor) -> tf.Tensor:
    """Sample uint8 pixels like `_warp`, surrounded by each image's mean color.

    After a large move, reflection would show the object twice. The paper's code fills in black,
    which adds an edge.
    """
    color = mean_colors(images)[:, None, None, :]
    centered = tf.cast(images, tf.float32) - color
    return _warp(centered, matrix, offset=offset, outside="CONSTANT") + color


def _warp(
    images: tf.Tensor, matrix: tf.Tensor, *, offset: tf.Tensor, outside: str = "REFLECT"
) -> tf.Tensor:
    """Sample float32 pixels bilinearly.

    Args:
        images: uint8 or float32 [batch, height, width, channels].
        matrix: float32 [batch, 2, 2], from output to input pixels, x first, about the center.
        offset: float32 [batch, 2], added in the input, pixels.
        outside: REFLECT: the image is reflected at its edges. CONSTANT: zeros surround it.
    """
    _, height, width, _ = images.shape
    center = tf.constant([(width - 1) / 2, (height - 1) / 2], tf.float32)
    origin = center + offset - tf.linalg.matvec(matrix, center)
    affine = tf.reshape(tf.concat([matrix, origin[:, :, None]], axis=2), [-1, 6])
    # 134 ms for any combination of changes, on CPU and GPU; XLA does not support it.
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(images, tf.float32),
        transforms=tf.pad(affine, [[0, 0], [0, 2]]),
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode=outside,
    )


def change_colors(
    images: tf.Tensor, random: AugmentationRandom, config: AugmentationConfig
) -> tf.Tensor:
    """Change brightness, contrast, saturation and hue, in this order, and clip to [0, 255].

    The factors of the options are those of torchvision's ColorJitter, which applies the four in
    random order and clips after each. Here they, and the factor of `augmentation.policy`, are one
    matrix and one offset: saturation and hue preserve gray, and so the mean gray that contrast
    uses. Hue rotates RGB around its gray axis, as Karras et al. (2020, "Training GANs with limited
    data") do; at thirds of a circle this equals HSV.
    """
    jitter = (config.brightness, config.contrast, config.saturation, config.hue)
    if config.policy == "none" and not any(jitter):
        return images
    _, height, width, channels = images.shape
    amounts = _draw_amounts(random, config)
    brightness, contrast, saturation = (
        (1 + _signed(getattr(random, name), getattr(config, name))) * (1 + amounts[name])
        for name in ("brightness", "contrast", "saturation")
    )
    matrix = _saturation_matrix(saturation) @ _hue_matrix(_signed(random.hue, config.hue))
    matrix *= (brightness * contrast)[:, None, None]
    mean_gray = tf.reduce_sum(mean_colors(images) * tf.constant(_LUMA), axis=1, keepdims=True)
    offset = ((1 - contrast) * brightness)[:, None] * mean_gray
    # With the offset: 33 ms; channel by channel: 108 ms.
    mixed = tf.reshape(tf.cast(images, tf.float32), [-1, height * width, channels]) @ matrix
    mixed = tf.reshape(mixed, [-1, height * width * channels]) + offset
    return tf.reshape(tf.clip_by_value(mixed, 0, 255), [-1, height, width, channels])


def _saturation_matrix(factor: tf.Tensor) -> tf.Tensor:
    """Return matrices for rows of RGB, [batch, 3, 3]; 0 gives gray, 1 the identity."""
    gray = tf.repeat(tf.constant(_LUMA)[:, None], 3, axis=1)
    return gray + factor[:, None, None] * (tf.eye(3) - gray)


def _hue_matrix(turns: tf.Tensor) -> tf.Tensor:
    """Return rotations around (1, 1, 1) for rows of RGB, [batch, 3, 3], by Rodrigues' formula."""
    angle = 2 * math.pi * turns[:, None, None]
    gray = tf.fill([3, 3], 1 / 3)
    cross = tf.constant([[0.0, 1, -1], [-1, 0, 1], [1, -1, 0]]) / math.sqrt(3)
    return gray + tf.cos(angle) * (tf.eye(3) - gray) + tf.sin(angle) * cross


def mean_colors(images: tf.Tensor) -> tf.Tensor:
    """Return the mean of each channel of each image, float32 [batch, channels]."""
    # One axis at a time: 3 ms; both at once: 7 ms.
    return tf.reduce_mean(tf.reduce_mean(tf.cast(images, tf.float32), axis=1), axis=1)


def rounded(images: tf.Tensor) -> tf.Tensor:
    """Round float32 pixels within [0, 255] to uint8; return uint8 pixels unchanged."""
    return images if images.dtype == tf.uint8 else tf.cast(images + 0.5, tf.uint8)
