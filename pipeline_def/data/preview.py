"""What the report shows of training images: as the model sees them, and as a step may see them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.contract.configuration import from_dict
from components.images.canonical import canonicalize, decode
from components.transform.config import TransformConfig
from pipeline_def.config.trainer import TrainerConfig
from pipeline_def.data.augmentation.augment import augment
from pipeline_def.data.original_crops import NUMBERS, OriginalDecoder
from pipeline_def.data.sampler import TrainingOrder

Pixels = npt.NDArray[np.uint8]

# Augmented at once: float32 images of 224 pixels take 19 MB.
_BATCH = 32


def preview(canonical: Sequence[bytes], custom_config: Mapping[str, Any]) -> tuple[Pixels, Pixels]:
    """Decode training images, and change them as a training step would.

    Args:
        canonical: as Transform stores those of the train split, one or more.
        custom_config: of the Trainer: the fields of `TrainerConfig`.

    Returns:
        Two uint8 arrays [images, size, size, 3]: as the model sees them in evaluation, and with a
        random window of the margin and random augmentation, by `training.seed`. With mixup and
        cutmix, each is mixed with another one of `canonical`. When nothing changes any image, both
        are the same array.
    """
    choices = from_dict(TrainerConfig, custom_config)
    images, seed = choices.transform, choices.training.seed
    seen: Pixels = decode(_canonical(canonical, images), images).numpy()
    augmented = np.empty_like(seen)
    # Neighbours, which are mixed, are of all classes in training; here they may be of one.
    order = np.random.default_rng(seed).permutation(len(canonical))
    for step, start in enumerate(range(0, len(order), _BATCH)):
        rows = order[start : start + _BATCH]
        files = [canonical[row] for row in rows]
        augmented[rows] = _change(files, choices, seed=(seed, step))
    return seen, seen if np.array_equal(seen, augmented) else augmented


def _canonical(stored: Sequence[bytes], images: TransformConfig) -> tf.Tensor:
    """Return the files of images as evaluation has them."""
    files = tf.constant(stored)
    return canonicalize(files, images) if images.storage == "originals" else files


def _change(files: Sequence[bytes], choices: TrainerConfig, *, seed: tuple[int, int]) -> Pixels:
    """Augment a batch on one device, where the Trainer may leave the flips to the host."""
    augmentation = choices.augmentation
    if choices.transform.storage == "originals":
        images = _cut(files, choices, seed)
        augmentation = dataclasses.replace(augmentation, min_crop_area=1.0)
    else:
        windows = _draw_windows(len(files), choices, seed)
        images = decode(tf.constant(files), choices.transform, windows=windows)
    changed, _ = augment(
        images,
        tf.zeros([len(files)], tf.int64),
        seed=tf.constant(seed, tf.int64),
        config=augmentation,
        classes=1,
    )
    pixels: Pixels = changed.numpy()
    return pixels


def _draw_windows(count: int, choices: TrainerConfig, seed: tuple[int, int]) -> tf.Tensor:
    margin = choices.transform.margin
    corners = tf.random.stateless_uniform([count, 2], seed, maxval=margin + 1, dtype=tf.int32)
    return tf.pad(corners, [[0, 0], [0, 1]])


def _cut(files: Sequence[bytes], choices: TrainerConfig, seed: tuple[int, int]) -> tf.Tensor:
    """Cut windows out of originals as the readers do."""
    order = TrainingOrder(min_crop_area=choices.augmentation.min_crop_area)
    numbers = tf.random.stateless_uniform([len(files), NUMBERS], seed).numpy()
    return tf.constant(OriginalDecoder(choices.transform, order).decode(files, numbers))
