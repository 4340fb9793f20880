"""Random augmentation of training images: pure functions of pixels and a seed.

All ops work on whole batches, on the accelerator. Measurements in comments are for 128 images of
224 pixels on 2 CPU cores.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.configuration import from_dict
from components.images.canonical import decode
from components.images.options import CHANNELS
from components.trainer.config.input import AugmentationConfig
from components.trainer.config.model import describe_error, import_function, mistake
from components.trainer.config.training import TrainerConfig
from components.trainer.input.host_calls import Pixels
from components.trainer.input.pixel_ops import (
    AugmentationRandom,
    apply_geometry,
    change_colors,
    draw_numbers,
    mean_colors,
    rounded,
)

# The user's own function, and its optional argument.
_OPTION = "augmentation.fn"
_SEED = "seed"
# Images of a preview augmented at once: as float32, 32 of 224 pixels take 19 MB.
_BATCH = 32


def augment(images: tf.Tensor, *, seed: tf.Tensor, config: AugmentationConfig) -> tf.Tensor:
    """Augment a batch at random: geometry, colors, cutout, own.

    Args:
        images: uint8 [batch, height, width, 3]; height and width are static.
        seed: int [2], such as seed and step: same seed, same result. Replicas that share a step
            need different seeds to augment differently.
        config: operations and their strengths.

    Returns:
        uint8 of the same shape, rounded once, after the last op, and after the user's own.
    """
    shape = images.shape
    random = draw_numbers(tf.shape(images)[0], seed)
    images = apply_geometry(images, random, config)
    images = change_colors(images, random, config)
    images = _cut_out(images, random, config.cutout)
    images = tf.ensure_shape(rounded(images), shape)
    return apply_own(images, seed=seed, path=config.fn)


def _span(center: tf.Tensor, length: int, *, size: int) -> tf.Tensor:
    """Mark `length` of `size` positions around a center, fewer at the ends: bool [batch, size]."""
    start = tf.cast(center * size, tf.int32) - length // 2
    positions = tf.range(size)
    return (positions >= start[:, None]) & (positions < (start + length)[:, None])


def _cut_out(images: tf.Tensor, random: AugmentationRandom, side: float) -> tf.Tensor:
    """Paint over a square whose center may lie at the edge, as in DeVries and Taylor (2017).

    They fill in the mean of the training set; the image's own mean needs no statistics, and leaves
    no bright square on dark pictures.
    """
    if not side:
        return images
    _, height, width, channels = images.shape
    rows = _span(random.cutout_y, round(side * height), size=height)
    columns = _span(random.cutout_x, round(side * width), size=width)
    # With columns and channels as one axis: 15 ms; as two, which broadcast the mask: 43 ms.
    mask = rows[:, :, None] & tf.repeat(columns, channels, axis=1)[:, None, :]
    color = tf.tile(tf.cast(tf.round(mean_colors(images)), images.dtype)[:, None, :], [1, 1, width])
    covered = tf.where(mask, color, tf.reshape(images, [-1, height, width * channels]))
    return tf.reshape(covered, [-1, height, width, channels])


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
        expected, shape = (f"{list(batch.shape)}" for batch in (images, changed))
        reason = f"it returned {changed.dtype.name} {shape}, but must return uint8 or float"
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


def preview(canonical: Sequence[bytes], custom_config: Mapping[str, Any]) -> tuple[Pixels, Pixels]:
    """Decode training images, and augment them as a training step would.

    Args:
        canonical: images as Transform stores the train split, at least one.
        custom_config: of the Trainer: the fields of `TrainerConfig`.

    Returns:
        Two uint8 arrays [images, size, size, 3]: as evaluation sees them, and with random
        augmentation, by `training.seed`. The same array twice if augmentation changes no image.
    """
    config = from_dict(TrainerConfig, custom_config)
    seen: Pixels = decode(tf.constant(canonical), config.transform).numpy()
    augmented = np.empty_like(seen)
    for step, start in enumerate(range(0, len(seen), _BATCH)):
        rows = slice(start, start + _BATCH)
        seeds = tf.constant([config.training.seed, step], tf.int64)
        images = tf.constant(seen[rows])
        augmented[rows] = augment(images, seed=seeds, config=config.augmentation).numpy()
    return seen, seen if np.array_equal(seen, augmented) else augmented
