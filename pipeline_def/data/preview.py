"""What the report shows of training images: as the model sees them, and as a step may see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.contract.configuration import from_dict
from components.images.canonical import decode
from components.transform.config import TransformConfig
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.trainer import TrainerConfig
from pipeline_def.data.augmentation.augment import augment

Pixels = npt.NDArray[np.uint8]

# Augmented at once: float32 images of 224 pixels take 19 MB.
_BATCH = 32


def preview(canonical: Sequence[bytes], custom_config: Mapping[str, Any]) -> tuple[Pixels, Pixels]:
    """Decode training images, and change them as a training step would.

    Args:
        canonical: as Transform stores them, one or more.
        custom_config: of the Trainer: the fields of `TrainerConfig`.

    Returns:
        Two uint8 arrays [images, size, size, 3]: as the model sees them in evaluation, and with a
        random window of the margin and random augmentation, by `training.seed`. With mixup and
        cutmix, each is mixed with another one of `canonical`. When nothing changes any image, both
        are the same array.
    """
    choices = from_dict(TrainerConfig, custom_config)
    images, augmentation, seed = choices.transform, choices.augmentation, choices.training.seed
    seen: Pixels = decode(tf.constant(canonical), images).numpy()
    augmented = np.empty_like(seen)
    # Neighbours, which are mixed, are of all classes in training; here they may be of one.
    order = np.random.default_rng(seed).permutation(len(canonical))
    for step, start in enumerate(range(0, len(order), _BATCH)):
        rows = order[start : start + _BATCH]
        files = tf.constant([canonical[row] for row in rows])
        augmented[rows] = _change(files, images, augmentation, seed=(seed, step))
    return seen, seen if np.array_equal(seen, augmented) else augmented


def _change(
    files: tf.Tensor,
    images: TransformConfig,
    augmentation: AugmentationConfig,
    *,
    seed: tuple[int, int],
) -> Pixels:
    """Augment a batch on one device, where the Trainer may leave the flips to the host."""
    corners = tf.random.stateless_uniform(
        [len(files), 2], seed, maxval=images.margin + 1, dtype=tf.int32
    )
    windows = tf.pad(corners, [[0, 0], [0, 1]])
    changed, _ = augment(
        decode(files, images, windows=windows),
        tf.zeros([len(files)], tf.int64),
        seed=tf.constant(seed, tf.int64),
        config=augmentation,
        classes=1,
    )
    pixels: Pixels = changed.numpy()
    return pixels
