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
from pipeline_def.config.model import ModelConfig
from pipeline_def.config.training import TrainingConfig

# Sizes that the models below were made for; the first that is not below the images is taken.
_STANDARD_SIZES = (32, 64, 96, 224)
_SMALL_IMAGE = 96

# On 160 photographs MobileNetV2 from random weights stayed below the most frequent class, where
# the small network at 96 pixels was above it; a few thousand are still few for 2 million weights.
_ENOUGH_TO_START_AT_RANDOM = 10_000


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
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    kubeflow: KubeflowConfig = field(default_factory=KubeflowConfig)

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


def resolve(config: Config, *, shorter_side: int, images: int) -> Config:
    """Fill in what follows from the images.

    Args:
        config: as the user gave it.
        shorter_side: the usual one of the images, pixels.
        images: number of them.
    """
    sizes = (size for size in _STANDARD_SIZES if size >= shorter_side)
    size = config.transform.size or next(sizes, _STANDARD_SIZES[-1])
    name = config.model.name
    if name == "auto":
        enough = config.model.weights != "none" or images >= _ENOUGH_TO_START_AT_RANDOM
        name = "mobilenet_v2" if enough and size >= _SMALL_IMAGE else "cnn"
    if name == "cnn" and config.transform.size is None:
        size = min(size, _SMALL_IMAGE)
    return dataclasses.replace(
        config,
        transform=dataclasses.replace(config.transform, size=size),
        model=dataclasses.replace(config.model, name=name),
    )
