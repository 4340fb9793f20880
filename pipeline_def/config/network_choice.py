"""Which network and which recipe suit the images, where the user leaves it open."""

from __future__ import annotations

import dataclasses

from components.contract.rules_of_thumb import ENOUGH_TO_START_AT_RANDOM, SMALL_SIDE
from pipeline_def.config.model import NATIVE_SIZES, OWN_NETWORKS
from pipeline_def.config.recipes import (
    ENOUGH_FOR_CIFAR,
    Recipe,
    Sections,
    apply_recipe,
    find_recipe,
)

# Sizes that the models below were made for; the first that is not below the images is taken.
_STANDARD_SIZES = (32, 64, 96, 224)
_SMALL_IMAGE = 96


def resolve(config: Sections, *, shorter_side: int, images: int) -> tuple[Sections, Recipe]:
    """Fill in what follows from the images.

    Args:
        config: as the user gave it.
        shorter_side: the usual one of the images, pixels.
        images: number of those to train on; 0 if nobody knows it yet.

    Returns:
        The configuration with all choices made, and the recipe that made those of training.
    """
    name, size = _choose_network(config, shorter_side=shorter_side, images=images)
    config = dataclasses.replace(
        config,
        transform=dataclasses.replace(config.transform, size=size),
        model=dataclasses.replace(config.model, name=name),
    )
    recipe = find_recipe(config, images=images, size=size)
    return apply_recipe(config, recipe), recipe


def _choose_network(config: Sections, *, shorter_side: int, images: int) -> tuple[str, int]:
    """Return the name of the network, and the side of the images that it sees, pixels."""
    model, wanted = config.model, config.transform.size
    sizes = (size for size in _STANDARD_SIZES if size >= shorter_side)
    size = wanted or next(sizes, _STANDARD_SIZES[-1])
    name = model.name
    if name == "auto" and not model.build_fn:
        name = _suitable_network(model.weights, size=size, images=images)
    if wanted is None and name in OWN_NETWORKS:
        size = min(size, _SMALL_IMAGE)
    if wanted is None and model.weights == "imagenet":
        size = NATIVE_SIZES[name]
    return name, size


def _suitable_network(weights: str, *, size: int, images: int) -> str:
    if weights == "imagenet":
        return "mobilenet_v2"
    enough = weights != "none" or images >= ENOUGH_TO_START_AT_RANDOM
    if size >= _SMALL_IMAGE:
        return "mobilenet_v2" if enough else "cnn"
    return "resnet9" if size <= SMALL_SIDE and images >= ENOUGH_FOR_CIFAR else "cnn"
