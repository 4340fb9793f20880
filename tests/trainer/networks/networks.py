"""Tiny models, images and training steps for the tests of this folder."""

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from components.trainer.config.model import ModelConfig
from components.trainer.networks.networks import build_model

SIZE, CLASSES = 32, 5
IMAGES = np.random.default_rng(0).integers(0, 256, (4, SIZE, SIZE, 3), np.uint8)
STATISTICS: dict[str, Any] = {"mean": [120.0, 110, 100], "variance": [60.0**2, 50**2, 40**2]}


def build(config: ModelConfig, *, seed: int = 0, **changes: Any) -> tf_keras.Model:
    tf_keras.utils.set_random_seed(seed)
    return build_model(config, **{"size": SIZE, "classes": CLASSES, **STATISTICS, **changes})


def train(model: tf_keras.Model, steps: int = 2) -> None:
    """Take steps of gradient descent on the trainable variables."""
    labels = tf.range(len(IMAGES)) % CLASSES
    for _ in range(steps):
        with tf.GradientTape() as tape:
            logits = model(IMAGES, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)


def values(weights: list[Any]) -> list[Any]:
    return [weight.numpy() for weight in weights]


def layers_of(model: tf_keras.Model) -> list[Any]:
    return [layer for layer in model.submodules if isinstance(layer, tf_keras.layers.Layer)]


def generators(model: tf_keras.Model) -> list[str]:
    """Return layers whose random numbers no checkpoint stores."""
    kinds = ("RandomGenerator", "Generator")
    return [
        layer.name
        for layer in layers_of(model)
        if type(layer).__name__ == "StochasticDepth"
        or any(type(value).__name__ in kinds for value in vars(layer).values())
    ]
