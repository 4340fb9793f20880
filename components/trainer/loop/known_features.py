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


def describe_images(
    training: Training, shards: Shards, *, phase: str, plain: tf_keras.Model | None = None
) -> Labeled | None:
    """Return the features of the first images of a split; None without a last Dense layer.

    Args:
        training: a completed one.
        shards: of its train or eval split.
        phase: whose weights its model has.
        plain: the model in float32 on one device, if that is another one.
    """
    model: tf_keras.Model = training.model
    source: Source = training.data
    if plain is not None and plain is not model:
        model = plain
    elif phase == HEAD:
        fixed, label_ids = training.see_fixed().first_views(shards)
        return fixed[:_MOST_IMAGES], label_ids[:_MOST_IMAGES]
    elif phase == FINE_TUNE:
        model, source = training.find_unfrozen()
    describe = _compile(model)
    if describe.structured_outputs is None:
        return None
    features = [np.empty((0, describe.structured_outputs.shape[1]), np.float32)]
    labels = [np.empty(0, np.int64)]
    with sharing_captured():
        batches = iter(source.read_in_order(shards))
    for images, ids in itertools.islice(batches, -(-_MOST_IMAGES // training.data.batch_size)):
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


def _compile(model: tf_keras.Model) -> Any:
    """Return a function from the input of a model to features, [batch, d]."""
    images = tf.TensorSpec([None, *model.input_shape[1:]], model.inputs[0].dtype)

    @tf.function(input_signature=[images], autograph=False)
    def describe(images: tf.Tensor) -> tf.Tensor | None:
        return find_features(model(images, training=False))

    return describe.get_concrete_function()
