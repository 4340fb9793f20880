"""The sections `model` and `export`, networks of `keras.applications`, functions of the user."""

import importlib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import field
from typing import Annotated, Any, NamedTuple, cast

from annotated_types import Interval

from components.contract.configuration import Count, Fraction, Number, Text, configuration, require
from components.contract.error_messages import did_you_mean
from components.contract.errors import ConfigurationError
from components.contract.model_files import ExportFormat
from components.contract.rules_of_thumb import OWN_NETWORKS
from components.storage.folder import reason_of


class Pixels(NamedTuple):
    """How pixels from 0 to 255 are scaled; channels are red, green, blue."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    """Divisor: the standard deviation or another constant."""
    reverse: bool = False
    """Whether the network sees blue first, as in Caffe."""


class Application(NamedTuple):
    """A network for photographs, without its layer of classes."""

    constructor: str
    """Name in `keras.applications`; "" for one of ours."""
    size: int
    """Size of the images of its ImageNet weights, pixels."""
    pixels: Pixels


_LITE = Pixels((127.0,) * 3, (128.0,) * 3)
_SIGNED = Pixels((127.5,) * 3, (127.5,) * 3)
_SIGNED_128 = Pixels((128.0,) * 3, (128.0,) * 3)
_IMAGENET = Pixels((0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255))
_CAFFE = Pixels((123.68, 116.779, 103.939), (1.0,) * 3, reverse=True)

# Pixels are scaled as by EfficientNet-Lite's own code, `preprocess_input` of tf_keras 2.16, or by
# the layers of the constructor.
APPLICATIONS = {
    "efficientnet_lite0": Application("", 224, _LITE),
    "efficientnet_lite1": Application("", 240, _LITE),
    "efficientnet_lite2": Application("", 260, _LITE),
    "mobilenet_v2": Application("MobileNetV2", 224, _SIGNED),
    "mobilenet_v3_small": Application("MobileNetV3Small", 224, _SIGNED),
    "mobilenet_v3_large": Application("MobileNetV3Large", 224, _SIGNED),
    "efficientnet_v2_b0": Application("EfficientNetV2B0", 224, _IMAGENET),
    "efficientnet_v2_b1": Application("EfficientNetV2B1", 240, _IMAGENET),
    "efficientnet_v2_b2": Application("EfficientNetV2B2", 260, _IMAGENET),
    "efficientnet_v2_b3": Application("EfficientNetV2B3", 300, _IMAGENET),
    "efficientnet_v2_s": Application("EfficientNetV2S", 384, _SIGNED_128),
    "efficientnet_v2_m": Application("EfficientNetV2M", 480, _SIGNED_128),
    "efficientnet_v2_l": Application("EfficientNetV2L", 480, _SIGNED_128),
    "resnet50": Application("ResNet50", 224, _CAFFE),
    "resnet50_v2": Application("ResNet50V2", 224, _SIGNED),
    "convnext_tiny": Application("ConvNeXtTiny", 224, _IMAGENET),
    "convnext_small": Application("ConvNeXtSmall", 224, _IMAGENET),
    "convnext_base": Application("ConvNeXtBase", 224, _IMAGENET),
    "convnext_large": Application("ConvNeXtLarge", 224, _IMAGENET),
    "densenet121": Application("DenseNet121", 224, _IMAGENET),
}

PACKAGED = tuple(name for name, network in APPLICATIONS.items() if not network.constructor)
"""Networks of ours, whose ImageNet weights are in Python packages."""

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_NAMES = ("auto", *OWN_NETWORKS, *APPLICATIONS)


@configuration("model")
class ModelConfig:
    """Which network is trained."""

    name: Text = "auto"
    """Network: cnn, resnet9, a backbone for photographs, or auto. cnn: four convolutions, for few
    small images. resnet9: a residual network of nine layers, for images up to 64 pixels. For
    photographs: efficientnet_lite0, _lite1 or _lite2, and of keras.applications mobilenet_v2,
    mobilenet_v3_small or _large, efficientnet_v2_b0 to _b3, _s, _m or _l, resnet50, resnet50_v2,
    convnext_tiny, _small, _base or _large, densenet121. auto: efficientnet_lite0 where `weights`
    are ImageNet's; from random weights mobilenet_v2 from 96 pixels and 8,000 training images on,
    resnet9 for at least 2,000 of up to 64 pixels, else cnn."""

    build_fn: Text | None = None
    """Your own network, such as my_package.my_module.my_model. It is a function of `size` (pixels)
    and `classes` that returns a tf_keras model from uint8 [batch, size, size, 3] to logits [batch,
    classes]. It replaces `name` and `weights`. The module must be installed, or lie in the folder
    that the run is started in."""

    weights: Text = "auto"
    """Initial weights: auto, none (random), imagenet, or a file of the same network. auto: for
    photographs ImageNet's, which Python packages contain for efficientnet_lite0, _lite1 and _lite2,
    else random. Photographs are images from 64 pixels on, and, enlarged to 192 pixels, fewer than
    10,000 images of 32 to 63. imagenet: also for networks of keras.applications, whose weights
    training downloads. A file is a path or URL: the `backbone.npz` of an earlier training."""

    width: Annotated[Count, Interval(le=4096)] = 0
    """Channels in the first stage of cnn and resnet9; later stages have up to four times as many.
    0: 32 for cnn, 64 for resnet9."""

    dropout: Annotated[Number, Interval(ge=0, lt=1)] = 0.2
    """Dropout rate before the last layer, against overfitting."""

    @property
    def weights_file(self) -> str | None:
        """Path or URL of the file of initial weights, if there is one."""
        return None if self.weights in ("auto", "none", "imagenet") else self.weights

    @property
    def pretrained(self) -> bool:
        """Whether the network starts from pretrained weights."""
        return self.weights not in ("auto", "none")

    @property
    def origin(self) -> str:
        """Where the initial weights come from, in words."""
        if self.weights == "imagenet":
            return f"ImageNet's for {self.name}"
        # Earlier versions downloaded them unasked.
        is_of_keras = self.name in APPLICATIONS and APPLICATIONS[self.name].constructor
        unused = "; --model.weights imagenet downloads ImageNet's" if is_of_keras else ""
        return self.weights_file or f"random{unused}"

    @property
    def title(self) -> str:
        """Name of the network in sentences."""
        return self.build_fn or self.name

    def __post_init__(self) -> None:
        """Check the name, and the fields against each other."""
        require(
            self.name in _NAMES,
            f"model.name is {self.name!r}: it must be one of {', '.join(_NAMES)}."
            f"{_suggest(self.name.lower())}",
        )
        require(self.weights != "", "model.weights is empty: set it to auto, none or a file.")
        require(
            self.weights != "imagenet" or self.name not in OWN_NETWORKS,
            f"model.weights is 'imagenet', but model.name {self.name} has no ImageNet weights: "
            f"choose another network, or weights from an earlier training.",
        )
        require(
            self.build_fn is None or (self.name == "auto" and self.weights in ("auto", "none")),
            f"model.build_fn is {self.build_fn!r}, which replaces model.name and model.weights: "
            f"leave them at auto, and load weights in the function.",
        )
        require(
            self.build_fn is None or self.dropout == ModelConfig.dropout,
            f"model.dropout is {self.dropout:g}, but model.build_fn builds its own layers: set the "
            f"dropout there.",
        )
        require(
            not self.width or (self.build_fn is None and self.name not in APPLICATIONS),
            f"model.width is {self.width}, but {self.title} has widths of its own: only cnn and "
            f"resnet9 take this option.",
        )
        check_path("model.build_fn", self.build_fn)


@configuration("export")
class ExportConfig:
    """What the exported model answers, and the other formats it is exported to."""

    false_alarms: Annotated[Number, Interval(ge=0, le=0.5)] = 0.05
    """Also answer whether an image is like those of training (`known`). This fraction of images
    like those, of the eval split or of all folds, on which the threshold is fitted, is called
    unknown by mistake. 0: do not answer it. 0.05 needs at least 19 images, and hundreds to be
    accurate."""

    formats: list[ExportFormat] = field(default_factory=list)
    """Formats to convert to, evaluate and push beside the SavedModel. onnx takes pixels of images
    of any size. float16, dynamic (8-bit weights) and int8 (8-bit weights and activations) are small
    versions for LiteRT on phones; they take pixels of images that are already resized."""

    max_drop: Fraction = 0.01
    """How far the accuracy of another format may lie below the model's on the evaluated split; one
    that loses more is not pushed."""

    def __post_init__(self) -> None:
        """Check that no format is listed twice."""
        require(
            len(set(self.formats)) == len(self.formats),
            f"export.formats is {self.formats}: it lists a format twice.",
        )


def _suggest(name: str) -> str:
    # Networks for photographs first: resnet18 and resnet101 are meant as one, unlike resnet9.
    family = name.rstrip("0123456789")
    related = [name for name in APPLICATIONS if len(family) > 3 and name.startswith(family)]
    return did_you_mean(next(iter(related), name), APPLICATIONS) or did_you_mean(name, _NAMES)


def check_path(option: str, path: str | None) -> None:
    """Raise `ConfigurationError` unless `path` is a dotted path or None."""
    require(
        path is None or bool(_FUNCTION.fullmatch(path)),
        f"{option} is {path!r}: it must be module.function.",
    )


def import_function(option: str, path: str) -> Callable[..., Any]:
    """Import a function, also from the folder that the run was started in.

    Raises:
        ConfigurationError: there is no such function, or its module fails.
    """
    module, _, name = path.rpartition(".")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        function: Any = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # The user's code may raise anything.
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            reason = f"there is no module {error.name} in {os.getcwd()} or among the installed ones"
        else:
            reason = f"importing {module} failed with {describe_error(error)}"
        raise mistake(option, path, reason) from error
    if not callable(function):
        raise mistake(option, path, f"module {module} has no function {name}")
    return cast("Callable[..., Any]", function)


def mistake(option: str, path: str, reason: str) -> ConfigurationError:
    """Return an error about the function that an option names."""
    return ConfigurationError(f"{option} is {path!r}: {reason}.")


def describe_error(error: Exception) -> str:
    """Return the class and the first line of an error."""
    return f"{type(error).__name__}: {reason_of(error)}"
