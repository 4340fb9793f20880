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
    size: int
    """Size of the images of its ImageNet weights, pixels."""
    pixels: Pixels
    parameters: int
    """Number of weights."""
    outputs: int
    """Number of values that all layers output, per pixel of the image."""


_SIGNED = Pixels((127.5,) * 3, (127.5,) * 3)
_SIGNED_128 = Pixels((128.0,) * 3, (128.0,) * 3)
_IMAGENET = Pixels((0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255))
_CAFFE = Pixels((123.68, 116.779, 103.939), (1.0,) * 3, reverse=True)

# Pixels are scaled as by `preprocess_input` of tf_keras 2.16, or by the layers of the constructor.
APPLICATIONS = {
    "mobilenet_v2": Application("MobileNetV2", 224, _SIGNED, 2_257_984, 444),
    "mobilenet_v3_small": Application("MobileNetV3Small", 224, _SIGNED, 939_120, 161),
    "mobilenet_v3_large": Application("MobileNetV3Large", 224, _SIGNED, 2_996_352, 404),
    "efficientnet_v2_b0": Application("EfficientNetV2B0", 224, _IMAGENET, 5_919_312, 325),
    "efficientnet_v2_b1": Application("EfficientNetV2B1", 240, _IMAGENET, 6_931_124, 440),
    "efficientnet_v2_b2": Application("EfficientNetV2B2", 260, _IMAGENET, 8_769_374, 503),
    "efficientnet_v2_b3": Application("EfficientNetV2B3", 300, _IMAGENET, 12_930_622, 603),
    "efficientnet_v2_s": Application("EfficientNetV2S", 384, _SIGNED_128, 20_331_360, 841),
    "efficientnet_v2_m": Application("EfficientNetV2M", 480, _SIGNED_128, 53_150_388, 1361),
    "efficientnet_v2_l": Application("EfficientNetV2L", 480, _SIGNED_128, 117_746_848, 2393),
    "resnet50": Application("ResNet50", 224, _CAFFE, 23_587_712, 749),
    "resnet50_v2": Application("ResNet50V2", 224, _SIGNED, 23_564_800, 634),
    "convnext_tiny": Application("ConvNeXtTiny", 224, _IMAGENET, 27_820_128, 638),
    "convnext_small": Application("ConvNeXtSmall", 224, _IMAGENET, 49_454_688, 1016),
    "convnext_base": Application("ConvNeXtBase", 224, _IMAGENET, 87_566_464, 1351),
    "convnext_large": Application("ConvNeXtLarge", 224, _IMAGENET, 196_230_336, 2021),
    "densenet121": Application("DenseNet121", 224, _IMAGENET, 7_037_504, 1004),
}
