"""Backbones of `keras.applications`: what each is called there, and the pixels it was trained on.

Three families could scale the pixels themselves (MobileNetV3, EfficientNetV2, ConvNeXt), the others
leave it to the caller. Here no network does it: `Standardization` does it for all of them.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import tf_keras
from tf_keras import layers

from components.contract.errors import ConfigurationError, ModelError
from components.images.canonical import CHANNELS
from pipeline_def.model.layers import Dropout, Pixels
from pipeline_def.model.own_networks import BATCH_NORM_MOMENTUM

_SMALLEST_SIDE = 32


class Application(NamedTuple):
    """A network of `keras.applications`."""

    constructor: str
    pixels: Pixels
    arrays: int
    """Number of its arrays of weights, without the layer of classes."""
    parameters: int
    """Number of all values in them."""
    features: int
    """Number of the features after the last pooling."""
    has_preprocessing: bool = False
    """Whether the constructor would scale the pixels, unless it is told not to."""


_MINUS_ONE_TO_ONE = Pixels((127.5,) * CHANNELS, (127.5,) * CHANNELS)
_BELOW_ONE = Pixels((128.0,) * CHANNELS, (128.0,) * CHANNELS)
_STANDARDIZED = Pixels(
    (0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255)
)
_CAFFE = Pixels((123.68, 116.779, 103.939), (1.0,) * CHANNELS, reverse=True)

# As `preprocess_input` of tf_keras 2.16, or its layers where the constructor has them, scale them.
APPLICATIONS = {
    "mobilenet_v2": Application("MobileNetV2", _MINUS_ONE_TO_ONE, 260, 2_257_984, 1280),
    "mobilenet_v3_small": Application(
        "MobileNetV3Small", _MINUS_ONE_TO_ONE, 206, 939_120, 576, True
    ),
    "mobilenet_v3_large": Application(
        "MobileNetV3Large", _MINUS_ONE_TO_ONE, 262, 2_996_352, 960, True
    ),
    "efficientnet_v2_b0": Application(
        "EfficientNetV2B0", _STANDARDIZED, 359, 5_919_312, 1280, True
    ),
    "efficientnet_v2_b1": Application(
        "EfficientNetV2B1", _STANDARDIZED, 441, 6_931_124, 1280, True
    ),
    "efficientnet_v2_b2": Application(
        "EfficientNetV2B2", _STANDARDIZED, 460, 8_769_374, 1408, True
    ),
    "efficientnet_v2_b3": Application(
        "EfficientNetV2B3", _STANDARDIZED, 536, 12_930_622, 1536, True
    ),
    "efficientnet_v2_s": Application("EfficientNetV2S", _BELOW_ONE, 670, 20_331_360, 1280, True),
    "efficientnet_v2_m": Application("EfficientNetV2M", _BELOW_ONE, 961, 53_150_388, 1280, True),
    "efficientnet_v2_l": Application("EfficientNetV2L", _BELOW_ONE, 1329, 117_746_848, 1280, True),
    "resnet50": Application("ResNet50", _CAFFE, 318, 23_587_712, 2048),
    "resnet50_v2": Application("ResNet50V2", _MINUS_ONE_TO_ONE, 270, 23_564_800, 2048),
    "convnext_tiny": Application("ConvNeXtTiny", _STANDARDIZED, 180, 27_820_128, 768, True),
    "convnext_small": Application("ConvNeXtSmall", _STANDARDIZED, 342, 49_454_688, 768, True),
    "convnext_base": Application("ConvNeXtBase", _STANDARDIZED, 342, 87_566_464, 1024, True),
    "convnext_large": Application("ConvNeXtLarge", _STANDARDIZED, 342, 196_230_336, 1536, True),
    "densenet121": Application("DenseNet121", _STANDARDIZED, 604, 7_037_504, 1024),
}


def build_application(name: str, *, size: int, weights: str, seed: int) -> tf_keras.Model:
    """Build a backbone: scaled pixels [batch, size, size, 3] → features [batch, d].

    Args:
        name: a key of `APPLICATIONS`.
        size: side of the images, pixels.
        weights: as `model.weights`; a file is not read here.
        seed: of its stochastic depth.

    Raises:
        ConfigurationError: the images are too small.
        ModelError: the weights called imagenet cannot be downloaded.
    """
    if size < _SMALLEST_SIDE:
        raise ConfigurationError(
            f"model.name {name} needs images of at least {_SMALLEST_SIDE} pixels, and they have "
            f"{size}: set transform.size, or take model.name cnn or resnet9."
        )
    application = APPLICATIONS[name]
    options = {"include_preprocessing": False} if application.has_preprocessing else {}
    try:
        network = getattr(tf_keras.applications, application.constructor)(
            input_shape=(size, size, CHANNELS),
            include_top=False,
            weights="imagenet" if weights == "imagenet" else None,
            pooling="avg",
            **options,
        )
    except Exception as error:  # Keras raises plain Exception when a download fails.
        if weights != "imagenet":
            raise
        raise _download_failed(name, error) from error
    if weights == "none":
        _shorten_memory(network)
    return _with_own_dropout(network, seed)


def _download_failed(name: str, error: Exception) -> ModelError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    return ModelError(
        f"Cannot download the weights of {name} that model.weights 'imagenet' asks for ({reason}): "
        f"name a file of them instead."
    )


def _shorten_memory(network: tf_keras.Model) -> None:
    for layer in network.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = BATCH_NORM_MOMENTUM


def _with_own_dropout(network: tf_keras.Model, seed: int) -> tf_keras.Model:
    """Replace Keras's dropout, which is the stochastic depth of EfficientNet; the rest is shared.

    The other families have none: `keras.applications` builds ConvNeXt without stochastic depth.
    """

    def own(layer: Any) -> Any:
        if not isinstance(layer, layers.Dropout):
            return layer
        # Every layer has a seed of its own; int32 leaves room for the number of the replica.
        return Dropout(
            layer.rate,
            zlib.crc32(f"{seed} {layer.name}".encode()) >> 1,
            name=layer.name,
            whole_images=True,
        )

    if not any(isinstance(layer, layers.Dropout) for layer in network.layers):
        return network
    return tf_keras.models.clone_model(network, clone_function=own)
