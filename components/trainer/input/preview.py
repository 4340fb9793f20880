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
