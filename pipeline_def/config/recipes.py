"""Recipes: values of training, model and augmentation that go together, and which one to take.

After BiT-HyperRule (Kolesnikov et al., 2020): the length of a training follows from the number of
images, augmentation from their number and size, so that nobody has to tune to begin.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from components.contract.rules_of_thumb import SMALL_SIDE
from components.transform.config import TransformConfig
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.training import TrainingConfig

ENOUGH_FOR_CIFAR = 2_000
"""Images from which on recipe cifar is taken; a rule of thumb, not measured."""

Values = Mapping[str, Any]
"""`section.field` → value."""


class _Sections(Protocol):
    """What is looked at and set: of the whole configuration, or of that of the Trainer step."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def transform(self) -> TransformConfig: ...
    @property
    def model(self) -> ModelConfig: ...
    @property
    def training(self) -> TrainingConfig: ...
    @property
    def augmentation(self) -> AugmentationConfig: ...
    @property
    def given(self) -> list[str]: ...


Sections = TypeVar("Sections", bound=_Sections)


@dataclass(frozen=True)
class Recipe:
    """A recipe for given images."""

    name: str
    why: str
    """The reason for taking it; a clause that follows "as"."""
    values: Values
    """What it sets, unless the user has."""

    def __str__(self) -> str:
        return f"{self.name}, as {self.why}"


def find_recipe(config: _Sections, *, images: int, size: int) -> Recipe:
    """Return the recipe that `training.recipe` names, or the one that suits the images.

    Args:
        config: as the user gave it.
        images: to train on; 0 if nobody knows yet.
        size: side of the images that the model sees, pixels.
    """
    name: str = config.training.recipe
    why = "you asked for it"
    if name == "auto":
        name, why = _choose(config, images=images, size=size)
    values = dict(_RECIPES[name](images))
    if config.training.recipe == "auto" and size <= SMALL_SIDE:
        # Text and digits are not symmetric, and images of this size often are just that.
        values.pop("augmentation.flip", None)
    return Recipe(name, why, values)


def apply_recipe(config: Sections, recipe: Recipe) -> Sections:
    """Set what the recipe sets and the user has not: neither by name, nor to another value."""
    sections: dict[str, dict[str, Any]] = {"training": {"recipe": recipe.name}}
    defaults = type(config)()
    for key, value in recipe.values.items():
        section, field = key.split(".")
        ours, default = (_value(c, key) for c in (config, defaults))
        if key not in config.given and ours == default:
            sections.setdefault(section, {})[field] = value
    changed = {
        name: dataclasses.replace(getattr(config, name), **fields)
        for name, fields in sections.items()
    }
    # From here on it is all one who has made which choice.
    return dataclasses.replace(config, given=[], **changed)


def recipe_values(config: _Sections, *, images: int) -> dict[str, dict[str, Any]]:
    """Return, for each recipe, the values that a resolved configuration would have with it.

    A field that has neither the value of its own recipe nor the default was set by the user, and no
    recipe changes it.

    Args:
        config: with all choices made.
        images: to train on; 0 if nobody knows.
    """
    every = {name: recipe(images) for name, recipe in _RECIPES.items()}
    compiled, defaults = config.training.recipe, type(config)()
    own = every.get(compiled, {})
    found: dict[str, dict[str, Any]] = {name: {} for name in (*every, compiled)}
    for key in sorted({key for values in every.values() for key in values}):
        value, default = (_value(of, key) for of in (config, defaults))
        if value not in (default, own.get(key, default)):
            continue
        for name, values in found.items():
            values[key] = value if name == compiled else every[name].get(key, default)
    return found


def _value(config: _Sections, key: str) -> Any:
    section, field = key.split(".")
    return getattr(getattr(config, section), field)


def _choose(config: _Sections, *, images: int, size: int) -> tuple[str, str]:
    if config.model.weights != "none":
        return "transfer", "model.weights are given"
    if size > SMALL_SIDE:
        return "photos", f"images have {size} pixels"
    return (
        "cifar" if images >= ENOUGH_FOR_CIFAR else "small",
        f"there are {images:,} images of {size} pixels to train on",
    )


def _small(images: int) -> Values:
    return {"training.epochs": _epochs(images, seen=17_000, least=12, most=20)}


def _cifar(images: int) -> Values:
    """After Page (2018) and Jordan (2024): a large batch, a large rate, and few epochs."""
    return {
        "training.batch_size": 512 if images >= 20_000 else 128,
        "training.epochs": _epochs(images, seen=675_000, least=15, most=40),
        "training.patience": 60,
        "training.optimizer": "sgd",
        "training.learning_rate": 0.75 if images >= 20_000 else 0.2,
        "training.momentum": 0.85,
        "training.schedule": "linear",
        "training.warmup_epochs": 2.0,
        # Decoupled; theirs goes through the momentum, which makes 1.3e-3 as much.
        "training.weight_decay": 9e-3,
        "training.label_smoothing": 0.2,
        "augmentation.flip": True,
        # Fewer images are learnt by heart sooner.
        "augmentation.cutout": 0.4 if images >= 20_000 else 0.5,
        "model.dropout": 0.0,
    }


def _photos(images: int) -> Values:
    return {
        "training.epochs": _epochs(images, seen=200_000, least=20, most=60),
        "training.patience": 15,
        "augmentation.flip": True,
    }


def _transfer(images: int) -> Values:
    return {
        "training.epochs": _epochs(images, seen=100_000, least=5, most=30),
        "training.learning_rate": 1e-4,
        "training.warmup_epochs": 1.0,
        "augmentation.flip": True,
    }


def _epochs(images: int, *, seen: int, least: int, most: int) -> int:
    """Return how many epochs show the network about `seen` images, within limits."""
    return min(most, max(least, math.ceil(seen / max(images, 1))))


_RECIPES = {"small": _small, "cifar": _cifar, "photos": _photos, "transfer": _transfer}
