"""A small exported model, and images for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SIZE = 16
LABELS = ["a", "b", "c"]


def export(folder: Path) -> None:
    """Write a small model with the signatures that every exported model has."""
    import tensorflow as tf
    import tf_keras

    from components.contract.example import ENCODED
    from components.images.canonical import canonicalize
    from components.transform.config import TransformConfig
    from pipeline_def.serving.signatures import Classifier, make_signatures, save_atomically

    images = tf_keras.layers.Input([SIZE, SIZE, 3], dtype=tf.uint8)
    features = tf_keras.layers.Conv2D(8, 3, activation="relu")(
        tf_keras.layers.Rescaling(1 / 255)(images)
    )
    logits = tf_keras.layers.Dense(3)(tf_keras.layers.Flatten()(features))
    model = tf_keras.Model(images, logits)
    config = TransformConfig(size=SIZE, storage="png")
    served = tf.Module()
    served.weights = model.variables
    signatures = make_signatures(
        Classifier(model),
        lambda features: {ENCODED: canonicalize(tf.squeeze(features[ENCODED], 1), config)},
        labels=[label.encode() for label in LABELS],
        raw_spec={},
        config=config,
    )
    wanted = {name: signatures[name] for name in ("serving_default", "explain")}
    save_atomically(served, str(folder), wanted)


def draw(count: int) -> list[bytes]:
    import tensorflow as tf

    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, [count, SIZE, SIZE, 3], np.uint8)
    return [tf.io.encode_png(image).numpy() for image in pixels]
