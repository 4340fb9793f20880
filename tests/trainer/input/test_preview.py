from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.contract.configuration import to_dict
from components.images.options import TransformConfig
from components.trainer.config.augmentation import AugmentationConfig
from components.trainer.config.training import TrainerConfig, TrainingConfig
from components.trainer.input.augment import augment
from components.trainer.input.preview import preview
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
    order = np.random.default_rng(3).permutation(len(seen))
    expected, _ = augment(
        tf.constant(seen[order]),
        tf.zeros([len(seen)], tf.int64),
        seed=tf.constant([3, 0], tf.int64),
        config=AugmentationConfig(**options),
        classes=1,
    )
    np.testing.assert_array_equal(augmented[order], expected)


@pytest.mark.parametrize("option", [{"mixup": 1.0}, {"cutmix": 1.0}], ids=["mixup", "cutmix"])
def test_images_are_mixed_across_classes(option: dict[str, Any]) -> None:
    # Twenty black images, then twenty white ones.
    config = TransformConfig(size=8, storage="raw")
    files = [bytes(192)] * 20 + [b"\xff" * 192] * 20
    seen, augmented = preview(files, custom_config(transform=config, **option, **OFF))
    mixed = (augmented != seen).any((1, 2, 3))
    assert mixed[:20].sum() >= 5
    assert mixed[20:].sum() >= 5


def test_every_image_is_augmented_differently() -> None:
    # More than one batch, each with its own random numbers.
    files = [encode(picture(7, height=32, width=32), "JPEG")] * 64
    _, augmented = preview(files, custom_config(shift=0.5, rotation=90.0))
    assert len(np.unique(augmented.reshape(64, -1), axis=0)) == 64
