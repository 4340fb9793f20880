"""TrivialAugment: a random operation of random strength for each image of a batch.

Each operation processes only the images that drew it.
"""

import enum
import math
from typing import NamedTuple

import tensorflow as tf

from components.trainer.config.augmentation import AugmentationConfig
from components.trainer.input.augmentation import color_ops
from components.trainer.input.augmentation.geometric_ops import warp_on_mean_color

# Separates the random numbers of policies from others of the same seed.
_STREAM = 1


class Operation(enum.IntEnum):
    """The 14 operations of the paper; those computed together are adjacent."""

    IDENTITY = 0
    SHEAR_X = 1
    SHEAR_Y = 2
    TRANSLATE_X = 3
    TRANSLATE_Y = 4
    ROTATE = 5
    BRIGHTNESS = 6
    CONTRAST = 7
    POSTERIZE = 8
    SOLARIZE = 9
    AUTOCONTRAST = 10
    EQUALIZE = 11
    COLOR = 12
    SHARPNESS = 13


_MOVES = slice(Operation.SHEAR_X, Operation.ROTATE + 1)
_TABLES = slice(Operation.BRIGHTNESS, Operation.EQUALIZE + 1)


class Ranges(NamedTuple):
    """The effect of operations at strength 1; at 0 they do nothing, at -1 the opposite.

    Solarize and posterize ignore the sign; autocontrast and equalize have no strength.
    """

    shear: float
    """Columns per row, or rows per column, about the center, to keep the object in view; the
    paper's code shears about a corner."""
    translation: float
    """Fraction of the side."""
    most_pixels: float
    """Largest translation, pixels."""
    rotation: float
    """Degrees."""
    enhancement: float
    """Added to the factor 1 of brightness, contrast, color and sharpness."""
    lost_bits: float
    """Bits of 8 that posterize clears."""


# The wide space of Müller and Hutter (2021). Its 32 pixels would move small images out of sight, so
# the fraction limits them, too.
RANGES = Ranges(0.99, 150 / 331, 32, 135, 0.99, 6)

# Number of strengths, from 0 to 1, to draw from.
_STRENGTHS = 31


def apply_policy(images: tf.Tensor, *, seed: tf.Tensor, config: AugmentationConfig) -> tf.Tensor:
    """Apply the random operations of `config.policy` to pixels within [0, 255].

    The result is uint8 if there is a policy, as Pillow rounds after every operation.
    """
    if config.policy == "none":
        return images
    numbers = tf.random.stateless_uniform(
        [1, 3, tf.shape(images)[0]], tf.random.experimental.stateless_fold_in(seed, _STREAM)
    )
    choice, strength, side = tf.unstack(numbers[0])
    size = tf.floor(strength * _STRENGTHS) / (_STRENGTHS - 1)
    return apply_operations(
        color_ops.rounded(images),
        tf.cast(choice * len(Operation), tf.int32),
        strengths=tf.where(side < 0.5, -size, size),
    )


def apply_operations(
    images: tf.Tensor, operations: tf.Tensor, *, strengths: tf.Tensor
) -> tf.Tensor:
    """Apply one operation to each image.

    Args:
        images: uint8 [batch, height, width, 3].
        operations: int32 [batch], values of `Operation`.
        strengths: float32 [batch], -1 to 1.
    """
    # Sorting 128 images of 224 pixels by family takes 11 ms of CPU time, of 209 for the policy.
    order = tf.argsort(operations)
    counts = tf.reduce_sum(tf.one_hot(operations, len(Operation), dtype=tf.int32), axis=0)
    moves, tables = tf.reduce_sum(counts[_MOVES]), tf.reduce_sum(counts[_TABLES])
    families = tf.stack([counts[0], moves, tables, counts[-2], counts[-1]])
    strengths = tf.gather(strengths, order)
    same, moved, tabled, colored, sharpened = tf.split(tf.gather(images, order), families)
    _, of_moved, of_tabled, of_colored, of_sharpened = tf.split(strengths, families)
    _, kinds, *_ = tf.split(tf.gather(operations, order), families)
    parts = [
        same,
        _move(moved, kinds, strengths=of_moved),
        _tabulate(tabled, counts[_TABLES], strengths=of_tabled),
        color_ops.saturate(colored, 1 + of_colored * RANGES.enhancement),
        color_ops.sharpen(sharpened, 1 + of_sharpened * RANGES.enhancement),
    ]
    return tf.gather(tf.concat(parts, axis=0), tf.argsort(order))


def _move(images: tf.Tensor, kinds: tf.Tensor, *, strengths: tf.Tensor) -> tf.Tensor:
    """Shear, translate and rotate in one resampling, with a matrix for each image."""
    _, height, width, _ = images.shape

    def amount(kind: Operation, most: float) -> tf.Tensor:
        return tf.where(kinds == kind, strengths * most, 0.0)

    def pixels(kind: Operation, side: int) -> tf.Tensor:
        return tf.round(amount(kind, min(RANGES.translation * side, RANGES.most_pixels)))

    angle = amount(Operation.ROTATE, math.radians(RANGES.rotation))
    shear_x, shear_y = (
        amount(kind, RANGES.shear) for kind in (Operation.SHEAR_X, Operation.SHEAR_Y)
    )
    cos, sin = tf.cos(angle), tf.sin(angle)
    matrix = tf.stack([cos, shear_x - sin, shear_y + sin, cos], axis=1)
    offset = [pixels(Operation.TRANSLATE_X, width), pixels(Operation.TRANSLATE_Y, height)]
    return warp_on_mean_color(
        images, tf.reshape(matrix, [-1, 2, 2]), offset=tf.stack(offset, axis=1)
    )


def _tabulate(images: tf.Tensor, counts: tf.Tensor, *, strengths: tf.Tensor) -> tf.Tensor:
    """Map values through a table for each image; `counts` images have each kind of table."""
    _, contrast, _, _, stretched, equalized = tf.split(images, counts)
    factors = tf.split(1 + strengths * RANGES.enhancement, counts)
    _, _, posterize, solarize, _, _ = tf.split(tf.abs(strengths), counts)
    tables = [
        color_ops.brightness_table(factors[0]),
        color_ops.contrast_table(contrast, factors[1]),
        color_ops.posterize_table(tf.round(posterize * RANGES.lost_bits)),
        color_ops.solarize_table(256 * (1 - solarize)),
        color_ops.autocontrast_table(stretched),
        color_ops.equalize_table(equalized),
    ]
    return color_ops.look_up(images, tf.concat(tables, axis=0))
