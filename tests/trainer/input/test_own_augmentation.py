"""Augmentation by a function of the user, each mistake one sentence; augmented images to show."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from components.contract.configuration import to_dict
from components.contract.errors import ConfigurationError
from components.images.options import TransformConfig
from components.trainer.config.input import AugmentationConfig
from components.trainer.config.training import TrainerConfig, TrainingConfig
from components.trainer.input.augment import augment, check_own, preview
from tests.pictures import encode, picture
from tests.trainer.input.shard_folder import ShardFolder

FUNCTIONS = """
import tensorflow as tf

def invert(images):
    return 255 - images

def brighten(images):
    return tf.cast(images, tf.float32) + 100.4

def noise(images, seed):
    drawn = tf.random.stateless_uniform(tf.shape(images), seed, maxval=256, dtype=tf.int32)
    return tf.cast(drawn, tf.uint8)

def branch(images):
    if tf.reduce_max(images) < 1:
        images = images + 1
    return images

def crop(images):
    return images[:, 1:]

def fewer(images):
    return images[:1]

def fractions(images):
    return tf.cast(images, tf.float32) / 255

def failing(images):
    raise ZeroDivisionError("on purpose")

number = 3
"""
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 6, 6, 3), np.uint8)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder that the run is started in, with a module of the user."""
    (tmp_path / "my_augmentation.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("my_augmentation", None)


def augmented(name: str, step: int = 0, **others: float) -> npt.NDArray[np.uint8]:
    config = AugmentationConfig(shift=0, fn=f"my_augmentation.{name}", **others)  # type: ignore[arg-type]
    seed = tf.constant([5, step], tf.int64)

    @tf.function(autograph=False)
    def apply(images: tf.Tensor) -> tf.Tensor:
        return augment(images, seed=seed, config=config)

    return apply(tf.constant(IMAGES)).numpy()  # type: ignore[no-any-return]


def test_it_changes_the_images_after_the_others() -> None:
    np.testing.assert_array_equal(augmented("invert"), 255 - IMAGES)
    np.testing.assert_array_equal(augmented("branch"), IMAGES)
    # Floats are rounded and stay within the range.
    expected = np.clip(np.round(IMAGES + np.float32(100.4)), 0, 255)
    np.testing.assert_array_equal(augmented("brighten"), expected)
    inverted = augmented("invert", cutout=1)
    np.testing.assert_array_equal(inverted, 255 - augmented("branch", cutout=1))


def test_its_seed_differs_in_every_step() -> None:
    np.testing.assert_array_equal(augmented("noise", 1), augmented("noise", 1))
    assert (augmented("noise", 1) != augmented("noise", 2)).any()


MISTAKES = {
    "crop": r"returned uint8 \[None, 5, 6, 3\], but must return uint8 or float \[None, 6, 6, 3\]",
    "fewer": "it returned 1 images for 2",
    "fractions": "it returned values from 0 to 1, but must return 0 to 255",
    "failing": "it failed with ZeroDivisionError: on purpose",
    "number": "module my_augmentation has no function number",
}


@pytest.mark.parametrize(("name", "message"), MISTAKES.items())
def test_a_mistake_is_found_before_training(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        check_own(f"my_augmentation.{name}", size=6)
    assert str(caught.value).startswith(f"augmentation.fn is 'my_augmentation.{name}': ")


def test_a_function_without_mistakes_is_accepted() -> None:
    check_own("my_augmentation.noise", size=6)
    check_own(None, size=6)
    with pytest.raises(ConfigurationError, match=r"it must be module\.function"):
        AugmentationConfig(fn="invert")


def show(images: list[bytes], **augmentation: Any) -> Any:
    config = TrainerConfig(
        transform=TransformConfig(size=32),
        augmentation=AugmentationConfig(**augmentation),
        training=TrainingConfig(seed=3),
    )
    return preview(images, to_dict(config))


def test_images_are_shown_as_in_evaluation_and_as_in_a_training_step(
    shard_folder: ShardFolder,
) -> None:
    images = shard_folder.images["eval"]
    seen, augmented = show(images, shift=0.0)
    np.testing.assert_array_equal(seen, shard_folder.pixels("eval"))
    assert augmented is seen
    options: dict[str, Any] = {"shift": 0.2, "flip": True, "brightness": 0.4, "cutout": 0.3}
    config, step = AugmentationConfig(**options), tf.constant([3, 0], tf.int64)
    expected = augment(tf.constant(seen), seed=step, config=config)
    np.testing.assert_array_equal(show(images, **options)[1], expected)
    # More than one batch, each with its own random numbers.
    files = [encode(picture(7, height=32, width=32), "JPEG")] * 64
    _, augmented = show(files, shift=0.5, rotation=90.0)
    assert len(np.unique(augmented.reshape(64, -1), axis=0)) == 64
