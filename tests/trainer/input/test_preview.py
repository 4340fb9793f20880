from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.configuration import to_dict
from components.images.options import TransformConfig
from components.trainer.config.input import AugmentationConfig
from components.trainer.config.training import TrainerConfig, TrainingConfig
from components.trainer.input.augment import augment, preview
from tests.pictures import encode, picture
from tests.trainer.input.shard_folder import ShardFolder

OFF: dict[str, Any] = {"shift": 0.0}


def custom_config(
    *, seed: int = 0, transform: TransformConfig | None = None, **augmentation: Any
) -> dict[str, Any]:
    config = TrainerConfig(
        transform=transform or TransformConfig(size=32),
        augmentation=AugmentationConfig(**augmentation),
        training=TrainingConfig(seed=seed),
    )
    return to_dict(config)


def test_images_are_those_of_evaluation(shard_folder: ShardFolder) -> None:
    seen, augmented = preview(shard_folder.images["eval"], custom_config(**OFF))
    np.testing.assert_array_equal(seen, shard_folder.pixels("eval"))
    assert augmented is seen


def test_a_batch_is_augmented_as_in_a_training_step(shard_folder: ShardFolder) -> None:
    options: dict[str, Any] = {"shift": 0.2, "flip": True, "brightness": 0.4, "cutout": 0.3}
    seen, augmented = preview(shard_folder.images["eval"], custom_config(seed=3, **options))
    config, step = AugmentationConfig(**options), tf.constant([3, 0], tf.int64)
    np.testing.assert_array_equal(augmented, augment(tf.constant(seen), seed=step, config=config))


def test_every_image_is_augmented_differently() -> None:
    # More than one batch, each with its own random numbers.
    files = [encode(picture(7, height=32, width=32), "JPEG")] * 64
    _, augmented = preview(files, custom_config(shift=0.5, rotation=90.0))
    assert len(np.unique(augmented.reshape(64, -1), axis=0)) == 64
