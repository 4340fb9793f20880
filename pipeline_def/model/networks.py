"""The networks, in plain Keras: uint8 images in, one logit per class out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# TensorFlow Transform's layers are tf_keras layers, and so the whole model is: Keras 3 could
# neither track them nor train under MultiWorkerMirroredStrategy.
import tensorflow as tf
import tf_keras
from tf_keras import layers

from components.contract.errors import ModelError
from components.images.canonical_form import CHANNELS
from pipeline_def.config.model import ModelConfig

# Keras's MobileNetV2 averages over a thousand steps; a short training from scratch would be
# evaluated with statistics that still are those of its first steps.
_BATCH_NORM_MOMENTUM = 0.9


def build_model(
    config: ModelConfig,
    *,
    size: int,
    classes: int,
    mean: Sequence[float],
    variance: Sequence[float],
    seed: int = 0,
) -> tf_keras.Model:
    """Build the network that `config` names.

    Args:
        config: with `name` filled in.
        size: side of the images, pixels.
        classes: number of them.
        mean: of each channel over the training pixels, 0 to 255; the model normalises with it.
        variance: likewise.
        seed: of the features that dropout leaves out in training.

    Returns:
        A model from uint8 [batch, size, size, 3] to float32 logits [batch, classes].
    """
    inputs = layers.Input([size, size, CHANNELS], dtype="uint8", name="image")
    if config.name == "mobilenet_v2":
        features = _mobilenet_v2(inputs, config, mean, variance)
    else:
        features = _cnn(_normalized(inputs, mean, variance), config.width or 32)
    features = _Dropout(config.dropout, seed)(features)
    logits = layers.Dense(classes, dtype="float32", name="logits")(features)
    return tf_keras.Model(inputs, logits, name=config.name)


class _Dropout(layers.Layer):
    """Dropout that goes on where it was when training is continued from a checkpoint.

    Keras's own takes its random numbers from a generator that no checkpoint holds.
    """

    def __init__(self, rate: float, seed: int) -> None:
        super().__init__(name="dropout")
        self._rate, self._seed = rate, seed
        self._calls = self.add_weight(
            "calls",
            dtype="int64",
            initializer="zeros",
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if not training:
            return inputs
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        call = self._calls.assign_add(1)
        seed = tf.stack([tf.constant(self._seed, tf.int64) + tf.cast(replica, tf.int64), call])
        return tf.nn.experimental.stateless_dropout(inputs, self._rate, seed)


def _normalized(inputs: Any, mean: Sequence[float], variance: Sequence[float]) -> Any:
    return layers.Normalization(mean=list(mean), variance=list(variance))(inputs)


def _cnn(images: Any, width: int) -> Any:
    """Four convolutions, each at half the resolution of the one before."""
    features = images
    for block, channels in enumerate((width, width * 2, width * 2, width * 4)):
        features = layers.Conv2D(channels, 3, padding="same", use_bias=False)(features)
        features = layers.BatchNormalization(momentum=_BATCH_NORM_MOMENTUM)(features)
        features = layers.ReLU()(features)
        if block < 3:
            features = layers.MaxPooling2D()(features)
    return layers.GlobalAveragePooling2D()(features)


def _mobilenet_v2(
    inputs: Any, config: ModelConfig, mean: Sequence[float], variance: Sequence[float]
) -> Any:
    """MobileNetV2 (Sandler et al., 2018) up to its pooled features, pretrained or not."""
    pretrained = config.weights != "none"
    try:
        backbone = tf_keras.applications.MobileNetV2(
            input_shape=inputs.shape[1:],
            include_top=False,
            weights=config.weights if pretrained else None,
            pooling="avg",
        )
    except Exception as error:  # Keras raises plain Exception when a download fails.
        reason = str(error).splitlines()[0]
        raise ModelError(f"Cannot load model.weights {config.weights!r}: {reason}.") from error
    if not pretrained:
        for layer in backbone.layers:
            if isinstance(layer, layers.BatchNormalization):
                layer.momentum = _BATCH_NORM_MOMENTUM
        return backbone(_normalized(inputs, mean, variance))
    # Pretrained weights expect the pixels they were trained on: -1 to 1.
    backbone.trainable = False
    return backbone(layers.Rescaling(1 / 127.5, offset=-1)(inputs))
