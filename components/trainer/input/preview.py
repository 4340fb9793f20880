"""Training images for the report: as the model sees them, and augmented as in training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.configuration import from_dict
from components.images.canonical import decode
from components.trainer.config.training import TrainerConfig
from components.trainer.input.augment import augment
from components.trainer.input.host_calls import Pixels

# Images augmented at once: as float32, 32 of 224 pixels take 19 MB.
_BATCH = 32


def preview(canonical: Sequence[bytes], custom_config: Mapping[str, Any]) -> tuple[Pixels, Pixels]:
    """Decode training images, and augment them as a training step would.

    Args:
        canonical: images as Transform stores the train split, at least one.
        custom_config: of the Trainer: the fields of `TrainerConfig`.

    Returns:
        Two uint8 arrays [images, size, size, 3]: as evaluation sees them, and with random
        augmentation, by `training.seed`. Mixup and cutmix mix each with
        another image of `canonical`. The same array twice if augmentation changes no image.
    """
    config = from_dict(TrainerConfig, custom_config)
    images, seed = config.transform, config.training.seed
    seen: Pixels = decode(tf.constant(canonical), images).numpy()
    augmented = np.empty_like(seen)
    # Mixing takes neighbors, which in training are of all classes; here they may be of one.
    order = np.random.default_rng(seed).permutation(len(canonical))
    for step, start in enumerate(range(0, len(order), _BATCH)):
        rows = order[start : start + _BATCH]
        augmented[rows] = _augment([canonical[row] for row in rows], config, seed=(seed, step))
    return seen, seen if np.array_equal(seen, augmented) else augmented


def _augment(files: Sequence[bytes], config: TrainerConfig, *, seed: tuple[int, int]) -> Pixels:
    """Augment a batch."""
    images, labels = decode(tf.constant(files), config.transform), tf.zeros([len(files)], tf.int64)
    seeds = tf.constant(seed, tf.int64)
    changed, _ = augment(images, labels, seed=seeds, config=config.augmentation, classes=1)
    pixels: Pixels = changed.numpy()
    return pixels
