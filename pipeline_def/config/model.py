"""Which network is trained: every choice, its default and the reason for it."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

from components.contract.configuration import require
from components.contract.kinds import check_types

OWN_NETWORKS = ("cnn", "resnet9")
"""Networks of this repository, for small images."""

NATIVE_SIZES = {
    "mobilenet_v2": 224,
    "mobilenet_v3_small": 224,
    "mobilenet_v3_large": 224,
    "efficientnet_v2_b0": 224,
    "efficientnet_v2_b1": 240,
    "efficientnet_v2_b2": 260,
    "efficientnet_v2_b3": 300,
    "efficientnet_v2_s": 384,
    "efficientnet_v2_m": 480,
    "efficientnet_v2_l": 480,
    "resnet50": 224,
    "resnet50_v2": 224,
    "convnext_tiny": 224,
    "convnext_small": 224,
    "convnext_base": 224,
    "convnext_large": 224,
    "densenet121": 224,
}
"""Backbone of `keras.applications` → side of the images that its ImageNet weights were made for,
pixels."""

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_NAMES = ("auto", *OWN_NETWORKS, *NATIVE_SIZES)


@dataclass(frozen=True)
class ModelConfig:
    """Which network is trained."""

    name: str = "auto"
    """cnn: four convolutions, for few small images. resnet9: a residual network of nine layers, for
    images up to 64 pixels. For photographs, a backbone of keras.applications: mobilenet_v2,
    mobilenet_v3_small or _large, efficientnet_v2_b0 to _b3, _s, _m or _l, resnet50, resnet50_v2,
    convnext_tiny, _small, _base or _large, densenet121. auto: mobilenet_v2 from 96 pixels on, if
    there are weights to start from or 10,000 images; resnet9 for 2,000 images and more of up to 64
    pixels; else cnn."""

    build_fn: str | None = None
    """A network of your own, such as my_package.my_module.my_model: a function of `size` (pixels)
    and `classes` that returns a tf_keras model from uint8 [batch, size, size, 3] to logits [batch,
    classes]. It takes the place of `name`. Python finds the module if it is installed, or lies in
    the folder that the run is started in."""

    weights: str = "none"
    """Where the network starts from: none (random), imagenet (downloaded by Keras), or the path or
    URL of a file of weights of the same network, with or without its last layer: the
    `backbone.weights.h5` of an earlier training, or what Keras has saved (.h5, .keras)."""

    width: int = 0
    """Channels of the first stage of cnn and resnet9; the later ones have up to four times as many.
    0: 32 for cnn, 64 for resnet9."""

    dropout: float = 0.2
    """Fraction of the features left out at random before the last layer, against overfitting."""

    views: Literal[1, 2, 6] = 1
    """Serve, and evaluate, the mean of the answers to several views of an image. 2: itself and its
    mirror image (Krizhevsky et al., 2012). 6: and both of them moved a little up and left, and down
    and right (Jordan, 2024). 1, because an answer takes as many times as long; it is a little more
    often right where a mirror image means the same."""

    @property
    def title(self) -> str:
        """What to call the network in a sentence."""
        return self.build_fn or self.name

    def __post_init__(self) -> None:
        """Check every value, quoting the one that is wrong."""
        check_types(self, "model")
        nearest = difflib.get_close_matches(self.name.lower(), _NAMES, n=1, cutoff=0)
        require(
            self.name in _NAMES,
            f"model.name is {self.name!r}: did you mean {nearest[0]}? There are "
            f"{', '.join(_NAMES)}.",
        )
        require(0 <= self.dropout < 1, f"model.dropout is {self.dropout}: it must be in [0, 1).")
        require(self.weights != "", "model.weights is empty: write none, imagenet, or a file.")
        require(
            0 <= self.width <= 4_096, f"model.width is {self.width}: it must be from 0 to 4,096."
        )
        require(
            self.weights != "imagenet" or self.name not in OWN_NETWORKS,
            f"model.weights is 'imagenet': model.name {self.name} has no such weights; name a file "
            f"of an earlier training, or another network.",
        )
        require(
            self.build_fn is None or (self.name == "auto" and self.weights != "imagenet"),
            f"model.build_fn is {self.build_fn!r}: it takes the place of model.name, and has no "
            f"weights called imagenet.",
        )
        require(
            self.build_fn is None or bool(_FUNCTION.fullmatch(self.build_fn)),
            f"model.build_fn is {self.build_fn!r}: it must be module.function.",
        )
