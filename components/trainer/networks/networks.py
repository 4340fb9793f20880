"""Builds every network: uint8 images in, one logit per class out, in plain Keras.

A model has two parts, backbone and head (`parts.py`), unless it is the user's (`build_fn.py`). The
backbone is a network of this repository (`layers.py`, `efficientnet_lite.py`) or of
`keras.applications` (`config/model.py`), and starts from random weights, from ImageNet's
(`imagenet.py`) or from those of an earlier training (`weights_file.py`).
"""

import contextlib
import gc
import inspect
import socket
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

# The layers of TensorFlow Transform are tf_keras layers, and so is the whole model: Keras 3 could
# neither track them nor train with MultiWorkerMirroredStrategy.
import tensorflow as tf
import tf_keras
from tf_keras import layers

from components.contract.errors import ConfigurationError, ModelError
from components.images.options import CHANNELS
from components.storage.folder import reason_of
from components.trainer.config.model import APPLICATIONS, PACKAGED, ModelConfig, Pixels
from components.trainer.networks.build_fn import build_own
from components.trainer.networks.efficientnet_lite import assign_tensors, build_efficientnet_lite
from components.trainer.networks.imagenet import read_imagenet
from components.trainer.networks.layers import (
    BATCH_NORM_MOMENTUM,
    Dropout,
    Standardization,
    build_cnn,
    build_resnet9,
)
from components.trainer.networks.parts import load_weights, make_backbone, make_head

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
_RESNET9_SCALE = 1 / 9
_MIN_SIDE = 32
# Seconds without data.
_SILENCE = 60.0


@contextlib.contextmanager
def precision(name: Literal["float32", "bfloat16", "float16"]) -> Iterator[None]:
    """Let layers that are created within the block compute in `name`; weights stay float32."""
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(_POLICIES[name])
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(before)


def make_plain(
    model: tf_keras.Model, build: Callable[[], tf_keras.Model], computed_in: str
) -> tf_keras.Model:
    """Return a model that TensorFlow can save, as it computes in float32 on one device.

    It is `model`, or what `build` returns, with its weights.
    """
    distributed = any(isinstance(v, tf.distribute.DistributedValues) for v in model.variables)
    if not distributed and computed_in == "float32":
        return model
    copy = build()
    for target, source in zip(copy.variables, model.variables, strict=True):
        target.assign(source.numpy())
    return copy


def build_model(
    config: ModelConfig,
    *,
    size: int,
    classes: int,
    mean: Sequence[float],
    variance: Sequence[float],
    patches: Sequence[Sequence[float]] | None = None,
    seed: int = 0,
) -> tf_keras.Model:
    """Build the network that `config` names; `Parts.of` divides it.

    Args:
        config: with `name` or `build_fn` set.
        size: side of the images in pixels.
        classes: number of classes.
        mean: of each channel over the training pixels, 0 to 255, to normalize the input; networks
            that start from a file keep their own.
        variance: likewise.
        patches: covariance [12, 12] of patches of two by two training pixels, by row, column and
            channel, for resnet9; None: neighboring pixels are independent.
        seed: of dropout.

    Returns:
        A model from uint8 [batch, size, size, 3] to float32 logits [batch, classes].

    Raises:
        ConfigurationError: the images are too small, or `build_fn` is wrong.
        ModelError: the weights cannot be read, or do not fit.
    """
    images = layers.Input([size, size, CHANNELS], dtype="uint8", name="image")
    if config.build_fn:
        model = build_own(config.build_fn, images, classes)
    else:
        pixels = _choose_pixels(config, mean, variance)
        backbone = _build_backbone(config, size=size, pixels=pixels, patches=patches, seed=seed)
        features = backbone.output_shape[-1]
        head = _build_head(config, features=features, classes=classes, seed=seed)
        model = tf_keras.Model(images, head(backbone(images)), name=config.name)
    if config.weights_file:
        load_weights(model, config)
    return model


def check_build_fn(config: ModelConfig, *, size: int, classes: int) -> None:
    """Raise the errors of `build_model` for a network of the user, which is built and dropped."""
    build_model(config, size=size, classes=classes, mean=(), variance=())
    # The layers of the next model get the same names as without this one, and its memory.
    tf_keras.backend.clear_session()
    gc.collect()


def _choose_pixels(config: ModelConfig, mean: Sequence[float], variance: Sequence[float]) -> Pixels:
    application = APPLICATIONS.get(config.name)
    if application and config.pretrained:
        return application.pixels
    deviation = tuple(value**0.5 for value in variance)
    return Pixels(tuple(mean), deviation, application is not None and application.pixels.reverse)


def _build_backbone(
    config: ModelConfig,
    *,
    size: int,
    pixels: Pixels,
    patches: Sequence[Sequence[float]] | None,
    seed: int,
) -> tf_keras.Model:
    if config.name == "cnn":
        network = build_cnn(size, config.width or 32)
    elif config.name == "resnet9":
        network = build_resnet9(size, config.width or 64, _standardize(patches, pixels))
    else:
        network = _build_application(config.name, size=size, weights=config.weights, seed=seed)
    images = layers.Input([size, size, CHANNELS], dtype="uint8")
    return make_backbone(images, network(Standardization(pixels)(images)))


def _standardize(
    patches: Sequence[Sequence[float]] | None, pixels: Pixels
) -> Sequence[Sequence[float]]:
    """Return the covariance of patches of standardized pixels."""
    if patches is None:
        identity: list[list[float]] = np.eye(2 * 2 * CHANNELS).tolist()
        return identity
    deviation = np.maximum(np.tile(pixels.deviation, 2 * 2), 1e-7)
    scaled: list[list[float]] = (np.asarray(patches) / np.outer(deviation, deviation)).tolist()
    return scaled


def _build_head(config: ModelConfig, *, features: int, classes: int, seed: int) -> tf_keras.Model:
    inputs = layers.Input([features], dtype="float32")
    outputs = Dropout(config.dropout, seed, name="dropout")(inputs)
    if config.name == "resnet9":
        outputs = layers.Dense(classes, use_bias=False, dtype="float32", name="logits")(outputs)
        outputs = layers.Rescaling(_RESNET9_SCALE, dtype="float32", name="scaled_logits")(outputs)
    else:
        outputs = layers.Dense(classes, dtype="float32", name="logits")(outputs)
    return make_head(inputs, outputs)


def _build_application(name: str, *, size: int, weights: str, seed: int) -> tf_keras.Model:
    """Build a backbone for photographs: scaled pixels in, features [batch, d] out.

    `Standardization` scales the pixels for all of them, though some constructors could do it.
    """
    if name in PACKAGED:
        network = build_efficientnet_lite(name, size)
        if weights == "imagenet":
            assign_tensors(network, read_imagenet(name))
    else:
        network = _build_keras(name, size=size, weights=weights)
    if weights in ("auto", "none"):
        for layer in network.layers:
            if isinstance(layer, layers.BatchNormalization):
                layer.momentum = BATCH_NORM_MOMENTUM
    return _replace_dropout(network, seed)


def _build_keras(name: str, *, size: int, weights: str) -> tf_keras.Model:
    if size < _MIN_SIDE:
        raise ConfigurationError(
            f"model.name {name} needs images of at least {_MIN_SIDE} pixels, but they have {size}: "
            "set transform.size, or use model.name cnn or resnet9."
        )
    constructor = getattr(tf_keras.applications, APPLICATIONS[name].constructor)
    options: dict[str, Any] = {}
    if "include_preprocessing" in inspect.signature(constructor).parameters:
        options["include_preprocessing"] = False
    before = socket.getdefaulttimeout()
    # Keras downloads without a time limit.
    socket.setdefaulttimeout(_SILENCE)
    try:
        return constructor(
            input_shape=(size, size, CHANNELS),
            include_top=False,
            weights="imagenet" if weights == "imagenet" else None,
            pooling="avg",
            **options,
        )
    except Exception as error:  # Keras raises plain Exception when a download fails.
        if weights != "imagenet":
            raise
        raise ModelError(
            f"model.weights is imagenet, but the weights of {name} cannot be downloaded "
            f"({reason_of(error)}): set it to a file, or model.name to {PACKAGED[0]}, whose "
            "weights are installed."
        ) from error
    finally:
        socket.setdefaulttimeout(before)


def _replace_dropout(network: tf_keras.Model, seed: int) -> tf_keras.Model:
    """Replace Keras's dropout, the stochastic depth of EfficientNet, by one that resumes exactly.

    Other families have none: `keras.applications` builds ConvNeXt without stochastic depth.
    """

    def replace(layer: Any) -> Any:
        if not isinstance(layer, layers.Dropout):
            return layer
        # Every layer has its own seed; int32 leaves room for the number of the replica.
        own_seed = zlib.crc32(f"{seed} {layer.name}".encode()) >> 1
        return Dropout(layer.rate, own_seed, name=layer.name, whole_images=True)

    if not any(isinstance(layer, layers.Dropout) for layer in network.layers):
        return network
    return tf_keras.models.clone_model(network, clone_function=replace)
