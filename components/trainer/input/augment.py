"""Random augmentation of training images: pure functions of pixels and a seed, for a training step.

All ops work on whole batches, on the accelerator. Measurements in comments are for 128 images of
224 pixels on 2 CPU cores.
"""

import functools
import inspect
import math

import tensorflow as tf

from components.images.options import CHANNELS
from components.trainer.config.augmentation import AugmentationConfig
from components.trainer.config.model import describe_error, import_function, mistake
from components.trainer.input.pixel_ops import (
    AugmentationRandom,
    apply_geometry,
    change_colors,
    draw_numbers,
    mean_colors,
    rounded,
)
from components.trainer.input.policy import apply_policy

Batch = tuple[tf.Tensor, tf.Tensor]

# The user's own function, and its optional argument.
_OPTION = "augmentation.fn"
_SEED = "seed"


def augment(
    images: tf.Tensor,
    labels: tf.Tensor,
    *,
    seed: tf.Tensor,
    config: AugmentationConfig,
    classes: int,
) -> Batch:
    """Augment a batch at random: geometry, policy, colors, cutout, mixup or cutmix, own.

    Args:
        images: uint8 [batch, height, width, 3]; height and width are static.
        labels: int64 [batch], from 0 to classes - 1.
        seed: int [2], such as seed and step: same seed, same result. Replicas that share a step
            need different seeds to augment differently.
        config: operations and their strengths.
        classes: number of classes.

    Returns:
        Images, uint8 of the same shape, rounded once, after the last op, and after the user's own;
        policies round after each operation, as Pillow does. Labels unchanged, or, with
        `config.soft_labels`, float32 [batch, classes], which add up to 1 per image.
    """
    shape = images.shape
    random = draw_numbers(tf.shape(images)[0], seed)
    images = apply_geometry(images, random, config)
    images = apply_policy(images, seed=seed, config=config)
    images = change_colors(images, random, config)
    images = _cut_out(images, random, config.cutout)
    if config.soft_labels:
        labels = tf.one_hot(labels, classes, dtype=tf.float32)
        images, labels = _mix(images, labels, random=random, config=config)
    images = tf.ensure_shape(rounded(images), shape)
    return apply_own(images, seed=seed, path=config.fn), labels


def _span(center: tf.Tensor, length: tf.Tensor | int, *, size: int) -> tf.Tensor:
    """Mark `length` of `size` positions around a center, fewer at the ends: bool [batch, size]."""
    start = tf.cast(center * size, tf.int32) - length // 2
    positions = tf.range(size)
    return (positions >= start[:, None]) & (positions < (start + length)[:, None])


def _replaced(
    images: tf.Tensor, content: tf.Tensor, *, rows: tf.Tensor, columns: tf.Tensor
) -> tf.Tensor:
    """Insert `content`, [batch, height or 1, width, channels], in marked rows and columns."""
    _, height, width, channels = images.shape
    # With columns and channels as one axis: 15 ms; as two, which broadcast the mask: 43 ms.
    mask = rows[:, :, None] & tf.repeat(columns, channels, axis=1)[:, None, :]
    content = tf.reshape(content, [-1, content.shape[1], width * channels])
    replaced = tf.where(mask, content, tf.reshape(images, [-1, height, width * channels]))
    return tf.reshape(replaced, [-1, height, width, channels])


def _cut_out(images: tf.Tensor, random: AugmentationRandom, side: float) -> tf.Tensor:
    """Paint over a square whose center may lie at the edge, as in DeVries and Taylor (2017).

    They fill in the mean of the training set; the image's own mean needs no statistics, and leaves
    no bright square on dark pictures.
    """
    if not side:
        return images
    _, height, width, _ = images.shape
    color = tf.cast(tf.round(mean_colors(images)), images.dtype)
    return _replaced(
        images,
        tf.repeat(color[:, None, None, :], width, axis=2),
        rows=_span(random.cutout_y, round(side * height), size=height),
        columns=_span(random.cutout_x, round(side * width), size=width),
    )


def _mix(
    images: tf.Tensor, labels: tf.Tensor, *, random: AugmentationRandom, config: AugmentationConfig
) -> Batch:
    """Mix each image and its soft label with the previous one; uint8 images out."""
    mixup = functools.partial(_mixup, images, labels, random=random, alpha=config.mixup)
    cutmix = functools.partial(_cutmix, images, labels, random=random, alpha=config.cutmix)
    if not (config.mixup and config.cutmix):
        return mixup() if config.mixup else cutmix()
    # The first number decides for the whole batch, which may be empty on a replica.
    mixed: Batch = tf.cond(tf.reduce_any(random.either[:1] < 0.5), mixup, cutmix)
    return mixed


def _blended(batch: tf.Tensor, fraction: tf.Tensor) -> tf.Tensor:
    """Blend `fraction`, [batch], of each row with the rest of the previous row, [batch, n]."""
    return fraction[:, None] * batch + (1 - fraction)[:, None] * tf.roll(batch, 1, axis=0)


def _mixup(
    images: tf.Tensor, labels: tf.Tensor, *, random: AugmentationRandom, alpha: float
) -> Batch:
    fraction = _beta(alpha, random.mixup_radius, random.mixup_angle)
    flat = tf.reshape(tf.cast(images, tf.float32), [-1, math.prod(images.shape[1:])])
    mixed = tf.reshape(_blended(flat, fraction), [-1, *images.shape[1:]])
    return rounded(mixed), _blended(labels, fraction)


def _cutmix(
    images: tf.Tensor, labels: tf.Tensor, *, random: AugmentationRandom, alpha: float
) -> Batch:
    _, height, width, _ = images.shape
    side = tf.sqrt(1 - _beta(alpha, random.cutmix_radius, random.cutmix_angle))
    rows = _span(random.cutmix_y, tf.cast(side * height, tf.int32), size=height)
    columns = _span(random.cutmix_x, tf.cast(side * width, tf.int32), size=width)
    mixed = _replaced(images, tf.roll(images, 1, axis=0), rows=rows, columns=columns)
    # The fraction that was actually replaced, which is smaller at the edge.
    pixels = tf.math.count_nonzero(rows, axis=1) * tf.math.count_nonzero(columns, axis=1)
    fraction = 1 - tf.cast(pixels, tf.float32) / (height * width)
    return rounded(mixed), _blended(labels, fraction)


def _beta(alpha: float, radius: tf.Tensor, angle: tf.Tensor) -> tf.Tensor:
    """Turn two uniform numbers into one of Beta(alpha, alpha), exactly and without rejections.

    Source: the symmetric beta of Devroye (1996, "Random variate generation in one line of code"),
    1/2 + sign(c) / 2 / sqrt(1 + 1 / ((u ** (-1 / alpha) - 1) * c ** 2)), with c = cos(2 pi v),
    rearranged so that nothing overflows for small alpha.
    """
    cos = tf.cos(2 * math.pi * angle)
    power = radius ** (1 / alpha)
    distance = (1 - power) * cos**2
    return 0.5 + 0.5 * tf.sign(cos) * tf.sqrt(tf.math.divide_no_nan(distance, power + distance))


def apply_own(images: tf.Tensor, *, seed: tf.Tensor, path: str | None) -> tf.Tensor:
    """Apply the user's function to uint8 [batch, height, width, 3]; return the same.

    Raises:
        ConfigurationError: it fails, or returns images of another shape or type.
    """
    if path is None:
        return images
    function = import_function(_OPTION, path)
    try:
        given = {_SEED: seed} if _SEED in inspect.signature(function).parameters else {}
        # Traced by itself, so that AutoGraph converts conditions and loops.
        changed = tf.function(function)(images, **given)
        changed = tf.convert_to_tensor(changed)
    except Exception as error:  # The user's code may raise anything.
        # AutoGraph puts a traceback before the error.
        problem = (str(error).strip() or type(error).__name__).splitlines()[-1].strip(" .")
        raise mistake(_OPTION, path, f"it failed with {problem}") from error
    fits = changed.shape.is_compatible_with(images.shape)
    if not fits or not (changed.dtype.is_floating or changed.dtype == tf.uint8):
        expected, found = (f"{list(one.shape)}" for one in (images, changed))
        reason = f"it returned {changed.dtype.name} {found}, but must return uint8 or float"
        raise mistake(_OPTION, path, f"{reason} {expected}")
    if changed.dtype != tf.uint8:
        changed = tf.saturate_cast(tf.round(changed), tf.uint8)
    return tf.ensure_shape(changed, images.shape)


def check_own(path: str | None, *, size: int) -> None:
    """Raise the errors of `apply_own` for noise of `size` pixels.

    Also if it drops images, or returns values from 0 to 1, which would be black.
    """

    @tf.function(autograph=False)
    def apply(images: tf.Tensor) -> tf.Tensor:
        return apply_own(images, seed=tf.zeros([2], tf.int64), path=path)

    if path is None:
        return
    shape = [2, size, size, CHANNELS]
    noise = tf.random.stateless_uniform(shape, [0, 0], 0, 256, tf.int32)
    try:
        apply.get_concrete_function(tf.TensorSpec([None, *shape[1:]], tf.uint8))
        changed = apply(tf.cast(noise, tf.uint8)).numpy()
    except tf.errors.OpError as error:
        raise mistake(_OPTION, path, f"it failed with {describe_error(error)}") from error
    if len(changed) != shape[0]:
        raise mistake(_OPTION, path, f"it returned {len(changed)} images for {shape[0]}")
    if changed.max() <= 1:
        raise mistake(_OPTION, path, "it returned values from 0 to 1, but must return 0 to 255")
