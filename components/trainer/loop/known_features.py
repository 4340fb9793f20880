"""What tells which images are known: features of training images, and of others to compare with.

They are computed from what the training has left: the features that the head was fitted to, or the
activations below the fine-tuned layers.
"""

import itertools
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray

from components.trainer.export.known import Likeness, find_features
from components.trainer.input.host_calls import sharing_captured
from components.trainer.input.shards import Shards
from components.trainer.loop.train import FINE_TUNE, HEAD, Source, Training

# Images of a split, the first ones.
_MOST_IMAGES = 20_000

Labeled = tuple[NDArray[np.floating[Any]], NDArray[np.int64]]
"""Features of images, [images, d], and their label ids."""


def describe_images(training: Training, shards: Shards, *, phase: str) -> Labeled | None:
    """Return the features of the first images of a split; None without a last Dense layer.

    The training is complete, and its model has the weights of `phase`.
    """
    model: tf_keras.Model = training.model
    source: Source = training.data
    if phase == HEAD:
        fixed, label_ids = training.see_fixed().first_views(shards)
        return fixed[:_MOST_IMAGES], label_ids[:_MOST_IMAGES]
    if phase == FINE_TUNE:
        model, source = training.find_unfrozen()
    batches = source.read_in_order(shards)
    key = model, batches.element_spec[0]
    # Tracing may take longer than the images of a fold.
    if key not in training.shared.describe:
        training.shared.describe[key] = _compile(*key)
    describe = training.shared.describe[key]
    if describe.structured_outputs is None:
        return None
    features = [np.empty((0, describe.structured_outputs.shape[1]), np.float32)]
    labels = [np.empty(0, np.int64)]
    with sharing_captured():
        first = itertools.islice(batches, -(-_MOST_IMAGES // training.data.batch_size))
    for images, ids in first:
        features.append(describe(images).numpy())
        labels.append(ids.numpy())
    return np.concatenate(features), np.concatenate(labels)


def score_evaluation(training: Training, *, phase: str) -> NDArray[np.float32] | None:
    """Return how much the images of the eval split are like those of training, [images].

    None without a last Dense layer.
    """
    known, others = (
        describe_images(training, shards, phase=phase)
        for shards in (training.data.train, training.data.evaluation)
    )
    if known is None or others is None:
        return None
    return Likeness.fit(*known).score(others[0])


def _compile(model: tf_keras.Model, batch: tf.TensorSpec) -> Any:
    """Return a function from batches for a model to features, float32 [batch, d].

    Activations are in half precision, as is what a network of mixed precision computes.
    """
    images = tf.TensorSpec([None, *batch.shape[1:]], batch.dtype)

    @tf.function(input_signature=[images], autograph=False)
    def describe(images: tf.Tensor) -> tf.Tensor | None:
        features = find_features(model(images, training=False))
        return None if features is None else tf.cast(features, tf.float32)

    return describe.get_concrete_function()
