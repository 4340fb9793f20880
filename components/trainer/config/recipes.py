"""Choices that follow from the images: image size, network and recipe.

A recipe is a set of defaults for training, model and augmentation. As in BiT-HyperRule (Kolesnikov
et al., 2020), the length of training follows from the number of images, so that nobody has to tune
to get started.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from components.contract.rules_of_thumb import ENOUGH_TO_START_AT_RANDOM, OWN_NETWORKS, SMALL_SIDE
from components.images.options import TransformConfig
from components.trainer.config.model import APPLICATIONS, PACKAGED, ModelConfig
from components.trainer.config.training import TrainingConfig, can_search

# A rule of thumb, not measured.
_ENOUGH_FOR_CIFAR = 2_000
# Best of 3 to 70 with 500 and 2,700 images of CIFAR-10, by up to three points.
_DECAY_EPOCHS = 8

# The first one not below the images is taken.
_STANDARD_SIZES = (32, 64, 96, 224)
_SMALL_IMAGE = 96
# Networks for photographs: from ImageNet's weights, and from random ones.
_PRETRAINED, _LARGE = "efficientnet_lite0", "mobilenet_v2"
# Recipes that may begin with pretrained weights.
_STARTS = ("auto", "transfer")
# Fewer training images of these sides, pixels, are enlarged to this one, for ImageNet's weights.
# With 500 images of CIFAR-10, the accuracy on 600 others was 0.48 from random weights, 0.71 by a
# new last layer and 0.77 fine-tuned: medians of `benchmarks.runs --part weights --each 50`. At 128
# pixels, and with trained depthwise filters, it was 0.68 and 0.755 instead of 0.78, and with 3,000
# images two points lower than 0.862, with one seed.
# The 10,000 are a rule of thumb.
_FEW_SMALL, _SMALL_SIDES, _ENLARGED = 10_000, range(32, 64), 192

Values = Mapping[str, Any]
"""`section.field` → value."""


class SectionsLike(Protocol):
    """The sections that a recipe reads, of the whole configuration or of `TrainerConfig`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def transform(self) -> TransformConfig:
        """Section `transform`."""

    @property
    def model(self) -> ModelConfig:
        """Section `model`."""

    @property
    def training(self) -> TrainingConfig:
        """Section `training`."""


Sections = TypeVar("Sections", bound=SectionsLike)


@dataclass(frozen=True)
class Recipe:
    """A recipe for given images."""

    name: str
    why: str
    """Reason for choosing it; a clause that follows "as"."""
    values: Values
    """The options it sets unless the user has."""

    def __str__(self) -> str:
        return f"{self.name}, as {self.why}"


def resolve(config: Sections, *, shorter_side: int, images: int) -> tuple[Sections, Recipe]:
    """Return the complete configuration: image size, network, weights and recipe.

    What the user has set stays. `shorter_side` is typical of the images, pixels; `images` is the
    number of training images, 0 if unknown.
    """
    model = choose_weights(config, shorter_side=shorter_side, images=images)
    name, size = _choose_network(config, model, shorter_side=shorter_side, images=images)
    config = dataclasses.replace(
        config,
        transform=dataclasses.replace(config.transform, size=size),
        model=dataclasses.replace(model, name=name),
    )
    recipe = _find_recipe(config, images=images, shorter_side=shorter_side)
    return _apply_recipe(config, recipe), recipe


def choose_weights(config: SectionsLike, *, shorter_side: int, images: int) -> ModelConfig:
    """Return the section `model` with weights in place of auto, and their network.

    ImageNet's are for photographs, a few small images, and EfficientNet-Lite if the user names it,
    unless the network is the user's own or has a width, or the recipe is for random weights.
    """
    model, wanted = config.model, config.transform.size
    if model.weights == "imagenet" and model.name == "auto":
        return dataclasses.replace(model, name=_PRETRAINED)
    if model.weights != "auto":
        return model
    photographs = (wanted or shorter_side) >= _SMALL_SIDES.stop
    few_small = not wanted and shorter_side in _SMALL_SIDES and 0 < images < _FEW_SMALL
    transfer = config.training.recipe == "transfer"
    name = model.name
    if name == "auto" and (photographs or few_small or transfer):
        name = _PRETRAINED
    is_own = model.build_fn or (model.width and model.name == "auto")
    if is_own or config.training.recipe not in _STARTS or name not in PACKAGED:
        return dataclasses.replace(model, weights="none")
    return dataclasses.replace(model, name=name, weights="imagenet")


def _choose_network(
    config: SectionsLike, model: ModelConfig, *, shorter_side: int, images: int
) -> tuple[str, int]:
    """Return the name of the network and its image size, pixels; `model` is complete but for it."""
    wanted = config.transform.size
    sizes = (size for size in _STANDARD_SIZES if size >= shorter_side)
    size = wanted or next(sizes, _STANDARD_SIZES[-1])
    name = model.name
    if name == "auto" and not model.build_fn:
        name = _suitable_network(model, size=size, images=images)
    if wanted is None and name in OWN_NETWORKS:
        size = min(size, _SMALL_IMAGE)
    if wanted is None and model.weights == "imagenet":
        size = _ENLARGED if shorter_side < _SMALL_SIDES.stop else APPLICATIONS[name].size
    return name, size


def _suitable_network(model: ModelConfig, *, size: int, images: int) -> str:
    """Return the network for weights other than ImageNet's."""
    enough = model.pretrained or images >= ENOUGH_TO_START_AT_RANDOM
    if size >= _SMALL_IMAGE:
        return _LARGE if enough else "cnn"
    return "resnet9" if size <= SMALL_SIDE and images >= _ENOUGH_FOR_CIFAR else "cnn"


def _find_recipe(config: SectionsLike, *, images: int, shorter_side: int) -> Recipe:
    """Return the recipe that `training.recipe` names, or the one that suits the images."""
    name: str = config.training.recipe
    why, size = "you asked for it", config.transform.seen_size
    if name == "auto":
        name, why = _choose_recipe(config, images=images, size=size)
    values = dict(RECIPES[name](images))
    if config.model.build_fn:
        values.pop("model.dropout", None)
    if config.training.recipe == "auto" and min(size, shorter_side) <= SMALL_SIDE:
        # Images of this size are often text or digits, which are not symmetric.
        values.pop("augmentation.flip", None)
    return Recipe(name, why, values)


def _choose_recipe(config: SectionsLike, *, images: int, size: int) -> tuple[str, str]:
    if config.model.pretrained:
        return "transfer", "training starts from pretrained weights"
    if size > SMALL_SIDE:
        return "photos", f"images have {size} pixels"
    return (
        "cifar" if images >= _ENOUGH_FOR_CIFAR else "small",
        f"there are {images:,} images of {size} pixels to train on",
    )


def _apply_recipe(config: Sections, recipe: Recipe) -> Sections:
    """Set the recipe's values, except options that the user named or changed."""
    defaults, given = type(config)(), getattr(config, "given", ())
    values: dict[str, Any] = {
        key: value
        for key, value in recipe.values.items()
        if key not in given and get_value(config, key) == get_value(defaults, key)
    }
    values["training.recipe"] = recipe.name
    if config.training.minutes and given:
        # A search leaves alone what the user has set.
        fixed = [*config.training.fixed, *filter(can_search, given)]
        if "training.recipe" in given:
            fixed.append("model.name")
        values["training.fixed"] = [*dict.fromkeys(fixed)]
    # From here on it does not matter who chose a value.
    fields: dict[str, Any] = {"given": []} if given else {}
    return dataclasses.replace(apply_values(config, values), **fields)


def apply_values(config: Sections, values: Values) -> Sections:
    """Return the configuration with other values.

    Raises:
        ConfigurationError: they do not go together.
    """
    changed: dict[str, Any] = {
        name: dataclasses.replace(getattr(config, name), **fields)
        for name, fields in nest_values(values).items()
    }
    return dataclasses.replace(config, **changed)


def nest_values(values: Values) -> dict[str, dict[str, Any]]:
    """Return section → field → value.

    >>> nest_values({"model.width": 8, "model.dropout": 0.1})
    {'model': {'width': 8, 'dropout': 0.1}}
    """
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, field = key.split(".")
        sections.setdefault(section, {})[field] = value
    return sections


def get_value(config: SectionsLike, key: str) -> Any:
    """Return the value of an option, as `section.field`."""
    section, field = key.split(".")
    return getattr(getattr(config, section), field)


def _small(images: int) -> Values:
    return {"training.epochs": _epochs(images, seen=17_000, least=12, most=20)}


def _cifar(images: int) -> Values:
    """After Page (2018) and Jordan (2024): a large batch, a high learning rate and few epochs.

    Fewer images overfit: they need longer trainings, smaller batches and more weight decay.
    """
    many, few = images >= 20_000, 0 < images < 1_000
    batch, rate = (512, 0.75) if many else (16, 0.05) if few else (128, 0.2)
    # Decoupled; theirs passes through the momentum, where 1.3e-3 has the same effect.
    decay = 9e-3
    if images and not many:
        # At the peak rate, weights decay by 1/e in so many epochs.
        decay = min(0.1, batch / (_DECAY_EPOCHS * images * rate))
    return {
        "training.batch_size": batch,
        "training.epochs": _epochs(images, seen=675_000, least=15, most=40),
        # Few eval images pick an epoch by chance; the last one was two to four points better.
        "training.keep": "last",
        "training.optimizer": "sgd",
        "training.learning_rate": rate,
        "training.weight_decay": float(f"{decay:.1g}"),
        "training.label_smoothing": 0.2,
        "augmentation.flip": True,
        # Fewer images overfit sooner.
        "augmentation.cutout": 0.4 if many else 0.5,
        "model.dropout": 0.0,
    }


def _photos(images: int) -> Values:
    return {
        "training.epochs": _epochs(images, seen=200_000, least=20, most=60),
        "training.patience": 15,
        "augmentation.flip": True,
    }


def _transfer(images: int) -> Values:
    """For the last half of the layers, which start from ImageNet's weights.

    Chosen with trained depthwise filters, on 3,000 images of CIFAR-10 at 128 pixels, with one seed:
    a learning rate of 2e-4, and mixed images, were two to three points worse. Flips were 6.3 ± 4.1
    points better on 160 photographs, and 2.5 worse, within chance, on 160 scans of digits, where no
    fold then kept fine-tuning. Two fifths of the layers and six epochs take half the time, but were
    five, five and ten points worse on three draws of 500 images of CIFAR-10.
    """
    return {
        "training.epochs": _epochs(images, seen=18_000, least=4, most=10),
        "training.batch_size": 32 if 0 < images < 1_000 else 64,
        # The last epoch needs no eval images to choose it, and the head alone is the alternative.
        "training.keep": "last",
        "training.optimizer": "adamw",
        "training.learning_rate": 5e-4,
        "training.weight_decay": 0.02,
        "training.label_smoothing": 0.1,
        "augmentation.flip": True,
    }


def _epochs(images: int, *, seen: int, least: int, most: int) -> int:
    """Return how many epochs show the network about `seen` images, within limits."""
    return min(most, max(least, math.ceil(seen / max(images, 1))))


RECIPES = {"small": _small, "cifar": _cifar, "photos": _photos, "transfer": _transfer}
"""Name → the function that returns its values for a number of training images."""
