from pathlib import Path
from typing import Any

import pytest

from components.images.options import TransformConfig
from components.trainer.config.model import ModelConfig
from components.trainer.config.recipes import resolve
from components.trainer.config.training import TrainerConfig, TrainingConfig
from pipeline_def.config.config import Config
from pipeline_def.config.options import describe_chosen, find_ineffective
from tests.config.command import parsed

LITE, LITE_1 = "efficientnet_lite0", "efficientnet_lite1"


def model(**options: Any) -> dict[str, Any]:
    return {"model": ModelConfig(**options)}


def size(pixels: int) -> dict[str, Any]:
    return {"transform": TransformConfig(size=pixels)}


def training(**options: Any) -> dict[str, Any]:
    return {"training": TrainingConfig(**options)}


# Shorter side and number of the images, what the user sets; then size, network and recipe.
CHOSEN: dict[str, tuple[int, int, dict[str, Any], tuple[int, str, str]]] = {
    "digits": (8, 1_437, {}, (32, "cnn", "small")),
    "CIFAR": (32, 50_000, {}, (32, "resnet9", "cifar")),
    "photographs": (375, 8_000, {}, (224, LITE, "transfer")),
    "photographs of an unknown number": (375, 0, {}, (224, LITE, "transfer")),
    "the smallest photographs": (64, 160, {}, (224, LITE, "transfer")),
    "few small photographs": (63, 9_999, {}, (192, LITE, "transfer")),
    "the smallest that are enlarged": (32, 1, {}, (192, LITE, "transfer")),
    "many small photographs": (63, 10_000, {}, (64, "resnet9", "cifar")),
    "too small to be enlarged": (31, 1_000, {}, (32, "cnn", "small")),
    "small ones of an unknown number": (32, 0, {}, (32, "cnn", "small")),
    "many at random": (375, 8_000, model(weights="none"), (224, "mobilenet_v2", "photos")),
    "too few to start at random": (375, 7_999, model(weights="none"), (96, "cnn", "photos")),
    "few, but from a file": (375, 160, model(weights="w.h5"), (224, "mobilenet_v2", "transfer")),
    "few small ones from a file": (32, 100, model(weights="w.h5"), (32, "cnn", "transfer")),
    "thumbnails at random": (90, 8_000, model(weights="none"), (96, "mobilenet_v2", "photos")),
    "a small size": (375, 8_000, size(48), (48, "resnet9", "cifar")),
    "the size of small images": (32, 1_000, size(32), (32, "cnn", "small")),
    "a large size": (375, 160, size(300), (300, LITE, "transfer")),
    "digits, enlarged": (8, 160, size(96), (96, LITE, "transfer")),
    "a network of Keras": (375, 160, model(name="mobilenet_v2"), (224, "mobilenet_v2", "photos")),
    "a network of ours": (8, 160, model(name=LITE_1), (192, LITE_1, "transfer")),
    "a small network": (375, 160, model(name="cnn"), (96, "cnn", "photos")),
    "weights of ImageNet": (8, 160, model(weights="imagenet"), (192, LITE, "transfer")),
    "a network with a size of its own": (
        *(375, 160, model(name="efficientnet_v2_b3", weights="imagenet")),
        (300, "efficientnet_v2_b3", "transfer"),
    ),
    "a network of the user's": (375, 160, model(build_fn="my.model"), (224, "auto", "photos")),
    "a recipe": (375, 10, training(recipe="cifar"), (96, "cnn", "cifar")),
    "transfer": (8, 10, training(recipe="transfer"), (192, LITE, "transfer")),
}


@pytest.mark.parametrize("kind", [Config, TrainerConfig])
@pytest.mark.parametrize(("side", "images", "given", "chosen"), CHOSEN.values(), ids=CHOSEN.keys())
def test_size_network_and_recipe_follow_the_images(
    kind: Any, side: int, images: int, given: dict[str, Any], chosen: tuple[int, str, str]
) -> None:
    config, recipe = resolve(kind(**given), shorter_side=side, images=images)
    assert (config.transform.size, config.model.name, config.training.recipe) == chosen
    assert recipe.name == config.training.recipe
    # Weights start from ImageNet's exactly where the network has them.
    assert (config.model.weights == "imagenet") == (
        config.model.name in ("efficientnet_v2_b3", LITE, LITE_1)
    )
    assert "auto" not in (config.model.title, config.model.weights)
    assert {
        key: getattr(getattr(config, section), field)
        for key in recipe.values
        for section, field in [key.split(".")]
    } == recipe.values


CIFAR = Config(**training(recipe="cifar"))


def test_a_recipe_says_why() -> None:
    _, recipe = resolve(Config(), shorter_side=32, images=50_000)
    assert str(recipe) == "cifar, as there are 50,000 images of 32 pixels to train on"
    assert str(resolve(CIFAR, shorter_side=32, images=9)[1]) == "cifar, as you asked for it"


@pytest.mark.parametrize(
    ("config", "images", "flip"),
    [*((Config(), count, False) for count in (500, 50_000)), (CIFAR, 9, True)],
)
def test_small_images_are_mirrored_only_if_the_user_says_so(
    config: Config, images: int, flip: bool
) -> None:
    assert resolve(config, shorter_side=32, images=images)[0].augmentation.flip == flip


def test_what_the_user_has_set_stays_even_if_it_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("training: {recipe: cifar, batch_size: 32}\n")
    given = parsed("--config", str(file), "--augmentation.flip", "false", "--training.epochs", "3")
    config, _ = resolve(given, shorter_side=32, images=50_000)
    assert (config.training.batch_size, config.augmentation.flip) == (32, False)
    assert (config.training.optimizer, config.training.epochs) == ("sgd", 3)


def test_a_longer_training_for_fewer_images() -> None:
    images = (100, 3_000, 50_000, 10_000_000, 0)
    epochs = [resolve(CIFAR, shorter_side=32, images=count)[0].training.epochs for count in images]
    assert epochs == [40, 40, 15, 15, 40]


INEFFECTIVE = {
    "--augmentation.flip true": "--augmentation.flip true changes nothing: recipe transfer sets it "
    "already",
    "--transfer.unfreeze 2 --model.weights none": "--transfer.unfreeze 2 changes nothing without "
    "pretrained weights",
    "--transfer.unfreeze 2": "",
    "--training.patience 7": "--training.patience 7 changes nothing with training.keep last",
    "--training.metric accuracy": "--training.metric accuracy changes nothing with training.keep "
    "last",
    "--training.metric accuracy --training.minutes 9": "",
    "--transfer.unfreeze none --augmentation.hue 0.1": "--augmentation.hue 0.1 changes nothing "
    "with transfer.unfreeze none",
    "--augmentation.flip false": "",
    "--training.keep best --training.patience 5": "",
    "--model.weights w.h5 --transfer.unfreeze 2": "",
    "--model.width 8": "",
}


@pytest.mark.parametrize(("words", "sentence"), INEFFECTIVE.items(), ids=INEFFECTIVE.keys())
def test_an_option_that_changes_nothing_says_so(words: str, sentence: str) -> None:
    given = parsed(*words.split())
    config, recipe = resolve(given, shorter_side=375, images=160)
    assert list(find_ineffective(given.given, config, recipe)) == ([sentence] if sentence else [])


def test_the_options_that_a_recipe_has_set() -> None:
    given = parsed("--training.epochs", "7", "--model.weights", "none")
    _, recipe = resolve(given, shorter_side=375, images=160)
    assert describe_chosen(given.given, recipe) == "training.patience 15, augmentation.flip true"
