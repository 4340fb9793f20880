"""Backbones of `keras.applications`: their constructors, pixels and sizes; needs no TensorFlow."""

from __future__ import annotations

from typing import NamedTuple


class Pixels(NamedTuple):
    """How pixels from 0 to 255 are scaled; channels are red, green, blue."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    """Divisor: the standard deviation or another constant."""
    reverse: bool = False
    """Whether the network sees blue first, as in Caffe."""


class Application(NamedTuple):
    """A network of `keras.applications`, without its layer of classes."""

    constructor: str
    pixels: Pixels
    arrays: int
    """Number of weight arrays."""
    parameters: int
    """Number of values in them."""
    features: int
    """Number of features after the last pooling."""
    outputs: int
    """Number of values that all layers output, per pixel of the image."""


_SIGNED = Pixels((127.5,) * 3, (127.5,) * 3)
_SIGNED_128 = Pixels((128.0,) * 3, (128.0,) * 3)
_IMAGENET = Pixels((0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255))
_CAFFE = Pixels((123.68, 116.779, 103.939), (1.0,) * 3, reverse=True)

# Pixels are scaled as by `preprocess_input` of tf_keras 2.16, or by the layers of the constructor.
APPLICATIONS = {
    "mobilenet_v2": Application("MobileNetV2", _SIGNED, 260, 2_257_984, 1280, 444),
    "mobilenet_v3_small": Application("MobileNetV3Small", _SIGNED, 206, 939_120, 576, 161),
    "mobilenet_v3_large": Application("MobileNetV3Large", _SIGNED, 262, 2_996_352, 960, 404),
    "efficientnet_v2_b0": Application("EfficientNetV2B0", _IMAGENET, 359, 5_919_312, 1280, 325),
    "efficientnet_v2_b1": Application("EfficientNetV2B1", _IMAGENET, 441, 6_931_124, 1280, 440),
    "efficientnet_v2_b2": Application("EfficientNetV2B2", _IMAGENET, 460, 8_769_374, 1408, 503),
    "efficientnet_v2_b3": Application("EfficientNetV2B3", _IMAGENET, 536, 12_930_622, 1536, 603),
    "efficientnet_v2_s": Application("EfficientNetV2S", _SIGNED_128, 670, 20_331_360, 1280, 841),
    "efficientnet_v2_m": Application("EfficientNetV2M", _SIGNED_128, 961, 53_150_388, 1280, 1361),
    "efficientnet_v2_l": Application("EfficientNetV2L", _SIGNED_128, 1329, 117_746_848, 1280, 2393),
    "resnet50": Application("ResNet50", _CAFFE, 318, 23_587_712, 2048, 749),
    "resnet50_v2": Application("ResNet50V2", _SIGNED, 270, 23_564_800, 2048, 634),
    "convnext_tiny": Application("ConvNeXtTiny", _IMAGENET, 180, 27_820_128, 768, 638),
    "convnext_small": Application("ConvNeXtSmall", _IMAGENET, 342, 49_454_688, 768, 1016),
    "convnext_base": Application("ConvNeXtBase", _IMAGENET, 342, 87_566_464, 1024, 1351),
    "convnext_large": Application("ConvNeXtLarge", _IMAGENET, 342, 196_230_336, 1536, 2021),
    "densenet121": Application("DenseNet121", _IMAGENET, 604, 7_037_504, 1024, 1004),
}
