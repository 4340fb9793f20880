"""Every choice of the pipeline, once: its default, its unit and the reason for it.

The command line and the YAML file are generated from these classes; nothing here imports TFX.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

from components.ingest_config import IngestConfig, require
from components.validation_config import ValidationConfig
from pipeline_def.augmentation_config import AugmentationConfig
from pipeline_def.evaluation_config import EvaluationConfig
from pipeline_def.input_config import InputConfig
from pipeline_def.kubeflow_config import KubeflowConfig

# Sizes that the models below were made for; the first that is not below the images is taken.
_STANDARD_SIZES = (32, 64, 96, 224)
_SMALL_IMAGE = 96

# On 160 photographs MobileNetV2 from random weights stayed below the most frequent class, where
# the small network at 96 pixels was above it; a few thousand are still few for 2 million weights.
_ENOUGH_TO_START_AT_RANDOM = 10_000


@dataclass(frozen=True)
class TransformConfig:
    """How Transform brings images to one form."""

    size: int | None = None
    """Side of the square images that the model sees, pixels. Unset: the local runner takes 32,
    64, 96 or 224, the first not below the usual shorter side of the images, but at most 96 for
    the model cnn."""

    fit: Literal["crop", "stretch"] = "crop"
    """crop: the largest central square, so that shapes stay true. stretch: the whole image, for
    objects that reach the edges."""

    margin: int = 0
    """Store images this many pixels larger than the model sees them: training then cuts a window
    at random, evaluation and serving cut the one in the middle. 0 to 256."""

    storage: Literal["jpeg", "png", "raw"] = "jpeg"
    """jpeg: small, and fast to read. png: without loss, three times slower to decode. raw: the
    pixels, 5 to 10 times larger; for when decoding holds up the accelerator."""

    quality: int = 95
    """JPEG quality of the stored images, 1 to 100; at 95 the loss is hard to see."""

    chroma: Literal["full", "half"] = "full"
    """Resolution of the colours of stored JPEGs. half (4:2:0): a fifth smaller and faster to
    decode; full keeps the edges of colours sharp, which matters most in small images."""

    @property
    def seen_size(self) -> int:
        """Side of the images that the model sees, pixels; `size`, once it is set."""
        if self.size is None:
            raise ValueError("transform.size is not set: `resolve` does that")
        return self.size

    @property
    def stored_size(self) -> int:
        """Side of the stored images, pixels."""
        return self.seen_size + self.margin

    def without_margin(self) -> TransformConfig:
        """Return what describes the same stored images, all of which the model sees."""
        return dataclasses.replace(self, size=self.stored_size, margin=0)

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        require(
            self.size is None or 8 <= self.size <= 2048,
            f"transform.size is {self.size}: it must be from 8 to 2048 pixels.",
        )
        require(
            0 <= self.margin <= 256,
            f"transform.margin is {self.margin}: it must be from 0 to 256 pixels.",
        )
        require(
            1 <= self.quality <= 100,
            f"transform.quality is {self.quality}: it must be from 1 to 100.",
        )


@dataclass(frozen=True)
class ModelConfig:
    """Which network is trained."""

    name: Literal["auto", "cnn", "mobilenet_v2"] = "auto"
    """cnn: four convolutions, for small images. mobilenet_v2: MobileNetV2, for photographs.
    auto: mobilenet_v2 from 96 pixels on, if there are weights to start from or 10,000 images;
    else cnn."""

    weights: str = "none"
    """Where mobilenet_v2 starts from: none (random), imagenet (downloaded by Keras), or the path
    of a Keras weights file without the top."""

    fine_tune: bool = False
    """Train the pretrained layers too, not only the new head; needs more images."""

    width: int = 32
    """Channels of the first convolution of cnn; each further one has up to twice as many."""

    dropout: float = 0.2
    """Share of the features left out at random before the last layer, against overfitting."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        require(0 <= self.dropout < 1, f"model.dropout is {self.dropout}: it must be in [0, 1).")
        require(self.width >= 1, f"model.width is {self.width}: it must be at least 1.")
        require(
            self.weights == "none" or self.name != "cnn",
            f"model.weights is {self.weights!r}: model.name cnn has no pretrained weights.",
        )


@dataclass(frozen=True)
class TrainingConfig:
    """How the network is trained."""

    epochs: int = 20
    """At most this many passes over the training images."""

    patience: int = 5
    """Stop after this many epochs without a lower loss on the eval split, and keep the best."""

    batch_size: int = 32
    """Images per training step."""

    learning_rate: float = 1e-3
    """Of Adam, at the start; it falls to zero along a cosine over all epochs."""

    seed: int = 0
    """Of weights, shuffling and augmentation."""

    checkpoint_steps: int = 0
    """Save the state of training every so many steps, to go on from there when it is killed. 0:
    at the end of every epoch."""

    profile_steps: int = 0
    """Record a profile of this many steps for TensorBoard, from the tenth step on."""

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        for name in ("epochs", "patience", "batch_size"):
            value = getattr(self, name)
            require(value >= 1, f"training.{name} is {value}: it must be at least 1.")
        for name in ("checkpoint_steps", "profile_steps"):
            value = getattr(self, name)
            require(value >= 0, f"training.{name} is {value}: it must not be negative.")
        require(
            self.learning_rate > 0,
            f"training.learning_rate is {self.learning_rate}: it must be above 0.",
        )


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
