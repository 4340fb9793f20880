from pathlib import Path
from typing import Any

import pytest

from components.transform.config import TransformConfig
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.config import Config
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.recipes import resolve
from pipeline_def.config.training import TrainerConfig, TrainingConfig
from tests.config.command import parsed

CHOSEN: dict[str, tuple[int, int, dict[str, Any], str]] = {
    "few small images": (32, 1_437, {}, "small"),
    "many small images": (32, 50_000, {}, "cifar"),
    "photographs": (375, 50_000, {}, "photos"),
    "few photographs": (375, 100, {}, "photos"),
    "weights to start from": (32, 100, {"model": ModelConfig(weights="w.h5")}, "transfer"),
    "photographs made small": (375, 50_000, {"transform": TransformConfig(size=32)}, "cifar"),
    "by name": (375, 10, {"training": TrainingConfig(recipe="cifar")}, "cifar"),
}


@pytest.mark.parametrize(("side", "images", "given", "name"), CHOSEN.values(), ids=CHOSEN.keys())
def test_the_recipe_follows_the_images(
    side: int, images: int, given: dict[str, Any], name: str
) -> None:
    config, recipe = resolve(Config(**given), shorter_side=side, images=images)
    assert (recipe.name, config.training.recipe) == (name, name)
    assert {
        key: getattr(getattr(config, section), field)
        for key in recipe.values
        for section, field in [key.split(".")]
    } == recipe.values


def test_a_recipe_says_why() -> None:
    _, recipe = resolve(Config(), shorter_side=32, images=50_000)
    assert str(recipe) == ("cifar, as there are 50,000 images of 32 pixels to train on")
    chosen = Config(training=TrainingConfig(recipe="cifar"))
    assert str(resolve(chosen, shorter_side=32, images=9)[1]) == "cifar, as you asked for it"


def test_small_images_are_mirrored_only_if_the_user_says_so() -> None:
    chosen, _ = resolve(Config(), shorter_side=32, images=50_000)
    assert not chosen.augmentation.flip
    named = Config(training=TrainingConfig(recipe="cifar"))
    assert resolve(named, shorter_side=32, images=50_000)[0].augmentation.flip


def test_what_the_user_has_set_stays() -> None:
    set_ = Config(
        training=TrainingConfig(recipe="cifar", epochs=3, optimizer="adamw"),
        augmentation=AugmentationConfig(flip=True),
    )
    config, _ = resolve(set_, shorter_side=32, images=50_000)
    assert (config.training.epochs, config.training.optimizer) == (3, "adamw")
    assert config.training.batch_size == 512


def test_a_default_that_the_user_has_named_stays(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("training: {recipe: cifar, batch_size: 32}\n")
    given = parsed("--config", str(file), "--augmentation.flip", "false")
    config, _ = resolve(given, shorter_side=32, images=50_000)
    assert (config.training.batch_size, config.augmentation.flip) == (32, False)
    assert config.training.optimizer == "sgd"


def test_a_longer_training_for_fewer_images() -> None:
    epochs = [
        resolve(Config(training=TrainingConfig(recipe="cifar")), shorter_side=32, images=images)[
            0
        ].training.epochs
        for images in (100, 3_000, 50_000, 10_000_000, 0)
    ]
    assert epochs == [*sorted(epochs[:-1], reverse=True), epochs[0]]
    assert len(set(epochs)) >= 2


@pytest.mark.parametrize(
    ("size", "images", "network", "recipe", "epochs"),
    [
        (32, 1_000, "cnn", "small", 17),
        (32, 5_000, "resnet9", "cifar", 40),
        (96, 160, "cnn", "photos", 60),
        (224, 9_000, "mobilenet_v2", "photos", 23),
    ],
)
def test_a_trainer_that_was_told_nothing_chooses_as_a_local_run_does(
    size: int, images: int, network: str, recipe: str, epochs: int
) -> None:
    transform = TransformConfig(size=size)
    told: list[Any] = [TrainerConfig(transform=transform), Config(transform=transform)]
    chosen, local = (resolve(one, shorter_side=size, images=images)[0] for one in told)
    assert (chosen.model.name, chosen.training.recipe) == (network, recipe)
    assert (chosen.training.epochs, chosen.transform) == (epochs, transform)
    sections = ("model", "training", "augmentation")
    assert [getattr(chosen, s) for s in sections] == [getattr(local, s) for s in sections]
