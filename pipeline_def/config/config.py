"""Every choice of the pipeline, once: its default, its unit and the reason for it.

The command line and the YAML file are generated from these classes; nothing here imports TFX.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from components.evaluation.config import EvaluationConfig
from components.ingest.config import IngestConfig
from components.transform.config import TransformConfig
from components.validation.config import ValidationConfig
from pipeline_def.config.augmentation import AugmentationConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.config.kubeflow import KubeflowConfig
from pipeline_def.config.model import NATIVE_SIZES, OWN_NETWORKS, ModelConfig
from pipeline_def.config.recipes import (
    ENOUGH_FOR_CIFAR,
    SMALL_SIDE,
    Recipe,
    apply_recipe,
    find_recipe,
)
from pipeline_def.config.training import TrainingConfig
from pipeline_def.config.transfer import TransferConfig

# Sizes that the models below were made for; the first that is not below the images is taken.
_STANDARD_SIZES = (32, 64, 96, 224)
_SMALL_IMAGE = 96

# On 160 photographs MobileNetV2 from random weights stayed below the most frequent class, where
# the small network at 96 pixels was above it; a few thousand are still few for 2 million weights.
# 8,000 to train on are 10,000 with the other splits.
ENOUGH_TO_START_AT_RANDOM = 8_000
"""Images from which on a network for photographs needs no pretrained weights."""


@dataclass(frozen=True)
class Config:
    """The whole pipeline."""

    data: str | None = None
    """Folder of images, as label/image or split/label/image (train, and eval, val, validation or
    test). Unset: a built-in sample, 1,797 handwritten digits."""

    output: str = "output"
    """Folder for everything the pipeline writes; run again with the same one to reuse results."""

    name: str = "images"
    """Name of the pipeline."""

    cache: bool = True
    """Reuse the results of steps whose inputs, configuration and code have not changed."""

    ingest: IngestConfig = field(default_factory=IngestConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    transform: TransformConfig = field(default_factory=TransformConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    input: InputConfig = field(default_factory=InputConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    kubeflow: KubeflowConfig = field(default_factory=KubeflowConfig)

    given: list[str] = field(default_factory=list)
    """Fields, as `section.field`, that the user has named; no recipe changes them. Filled in by the
    command line."""

    beam_pipeline_args: list[str] = field(
        default_factory=lambda: [
            "--runner=FnApiRunner",
            "--direct_running_mode=in_memory",
            "--sdk_container_image=none",
        ]
    )
    """Options of Apache Beam, which runs ingest, statistics, transform and evaluation. Beam's
    DirectRunner would first try to download a helper program, FnApiRunner does not; without an
    image TFX would pack itself for remote workers, for a second or more in every step."""


def resolve(config: Config, *, shorter_side: int, images: int) -> tuple[Config, Recipe]:
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


def _choose_network(config: Config, *, shorter_side: int, images: int) -> tuple[str, int]:
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
