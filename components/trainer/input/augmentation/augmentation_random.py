"""Random numbers for the augmentation of a batch."""

from typing import NamedTuple

import tensorflow as tf


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
    mixup_radius: tf.Tensor
    mixup_angle: tf.Tensor
    cutmix_radius: tf.Tensor
    cutmix_angle: tf.Tensor
    cutmix_y: tf.Tensor
    cutmix_x: tf.Tensor
    either: tf.Tensor


def draw_numbers(batch: tf.Tensor, seed: tf.Tensor) -> AugmentationRandom:
    """Draw the numbers of `batch` images by `seed`, int [2]."""
    # One kernel, instead of one for each name.
    numbers = tf.random.stateless_uniform([len(AugmentationRandom._fields), batch], seed)
    return AugmentationRandom(*tf.unstack(numbers))


def signed(number: tf.Tensor, limit: float) -> tf.Tensor:
    """Scale a number in [0, 1) to the range from -limit to limit."""
    return (2 * number - 1) * limit
