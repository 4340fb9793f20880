"""The sections `model` and `export`: the network, and the small versions of it to export."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Interval

from components.contract.configuration import (
    Count,
    Fraction,
    Number,
    Positive,
    Text,
    configuration,
    require,
)
from components.contract.error_messages import did_you_mean
from components.contract.model_files import LiteKind
from components.contract.rules_of_thumb import OWN_NETWORKS
from pipeline_def.config.applications import APPLICATIONS

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_NAMES = ("auto", *OWN_NETWORKS, *APPLICATIONS)


@configuration("model")
class ModelConfig:
    """Which network is trained."""

    name: Text = "auto"
    """cnn: four convolutions, for few small images. resnet9: a residual network of nine layers, for
    images up to 64 pixels. For photographs, a backbone of keras.applications: mobilenet_v2,
    mobilenet_v3_small or _large, efficientnet_v2_b0 to _b3, _s, _m or _l, resnet50, resnet50_v2,
    convnext_tiny, _small, _base or _large, densenet121. auto: mobilenet_v2 from 96 pixels on, given
    pretrained weights or 10,000 images; resnet9 for at least 2,000 images of up to 64 pixels; else
    cnn."""

    build_fn: Text | None = None
    """Your own network, such as my_package.my_module.my_model: a function of `size` (pixels) and
    `classes` that returns a tf_keras model from uint8 [batch, size, size, 3] to logits [batch,
    classes]. It replaces `name`. The module must be installed, or lie in the folder that the run is
    started in."""

    weights: Text = "none"
    """Initial weights: none (random), imagenet (downloaded by Keras), or the path or URL of a
    weights file of the same network, with or without its last layer: the `backbone.weights.h5` of
    an earlier training, or a file saved by Keras (.h5, .keras)."""

    width: Annotated[Count, Interval(le=4096)] = 0
    """Channels in the first stage of cnn and resnet9; later stages have up to four times as many.
    0: 32 for cnn, 64 for resnet9."""

    dropout: Annotated[Number, Interval(ge=0, lt=1)] = 0.2
    """Dropout rate before the last layer, against overfitting."""

    views: Literal[1, 2, 6] = 1
    """Serve and evaluate the mean prediction over several views of an image. 2: the image and its
    mirror image (Krizhevsky et al., 2012). 6: also both of them shifted slightly up and left, and
    down and right (Jordan, 2024). 1 because more views take as many times longer; they are slightly
    more accurate where a mirror image means the same."""

    @property
    def weights_file(self) -> str | None:
        """Path or URL of the file of initial weights, if there is one."""
        return None if self.weights in ("none", "imagenet") else self.weights

    @property
    def title(self) -> str:
        """Name of the network in sentences."""
        return self.build_fn or self.name

    def __post_init__(self) -> None:
        """Check the name, and the fields against each other."""
        require(
            self.name in _NAMES,
            f"model.name is {self.name!r}: it must be one of {', '.join(_NAMES)}."
            f"{did_you_mean(self.name.lower(), _NAMES)}",
        )
        require(self.weights != "", "model.weights is empty: set it to none, imagenet or a file.")
        require(
            self.weights != "imagenet" or self.name not in OWN_NETWORKS,
            f"model.weights is 'imagenet', but model.name {self.name} has no ImageNet weights: "
            f"choose another network, or weights from an earlier training.",
        )
        require(
            self.build_fn is None or (self.name == "auto" and self.weights != "imagenet"),
            f"model.build_fn is {self.build_fn!r}, which replaces model.name and has no ImageNet "
            f"weights: leave model.name at auto, and do not set model.weights to imagenet.",
        )
        require(
            self.build_fn is None or bool(_FUNCTION.fullmatch(self.build_fn)),
            f"model.build_fn is {self.build_fn!r}: it must be module.function.",
        )


@configuration("export")
class ExportConfig:
    """Small versions of the model, for LiteRT on phones and small computers."""

    lite: list[LiteKind] = field(default_factory=list)
    """Small versions to convert, evaluate and push: float16, dynamic (8-bit weights) and int8
    (8-bit weights and activations). They take pixels of images that are already resized."""

    max_drop: Fraction = 0.01
    """How far the accuracy of a small version may lie below the model's on the evaluated split; a
    version that loses more is not pushed."""

    calibration_images: Positive = 256
    """Random training images used to measure the activation ranges for int8."""

    def __post_init__(self) -> None:
        """Check that no version is listed twice."""
        require(
            len(set(self.lite)) == len(self.lite),
            f"export.lite is {self.lite}: it lists a version twice.",
        )
