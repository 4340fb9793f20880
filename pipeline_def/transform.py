"""Transform's preprocessing_fn: label vocabulary, pixel statistics and canonical files."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from components.example import ENCODED, FILENAME, LABEL, LABEL_ID, MEAN, VARIANCE
from pipeline_def.image import CHANNELS, canonicalize, channel_sums, decode

LABEL_VOCABULARY = "labels"


def preprocessing_fn(
    inputs: dict[str, tf.Tensor], custom_config: dict[str, Any]
) -> dict[str, tf.Tensor]:
    """Turn raw features, each [batch, 1], into what trainers and the served model read.

    Args:
        inputs: the features of `components.example`.
        custom_config: with `transform`, the fields of `TransformConfig`.

    Returns:
        `image/encoded` string [batch], canonical; `image/class/label` int64 [batch], in the
        vocabulary's order; `image/filename` string [batch]; `image/mean` and `image/variance`
        float32 [batch, 3], the same for every example: of the training images, 0 to 255.
    """
    config = custom_config["transform"]
    encoded = tf.reshape(inputs[ENCODED], [-1])
    canonical = canonicalize(
        encoded, size=config["size"], fit=config["fit"], quality=config["quality"]
    )
    mean, variance = _dataset_moments(decode(canonical, size=config["size"]))
    labels = tf.reshape(inputs[LABEL], [-1])
    return {
        ENCODED: canonical,
        LABEL_ID: tft.compute_and_apply_vocabulary(labels, vocab_filename=LABEL_VOCABULARY),
        FILENAME: tf.reshape(inputs[FILENAME], [-1]),
        MEAN: _repeat_for(encoded, mean),
        VARIANCE: _repeat_for(encoded, variance),
    }


def _dataset_moments(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean and variance, float32 [3], over all pixels of the analysed images.

    From integer sums: Beam sizes its batches by the clock, and the analyzers' own floating-point
    means end in other digits each time. Two numbers per image and channel are also far less to
    move through Beam than its pixels.
    """
    sums, squares = (tft.sum(x, reduce_instance_dims=False) for x in channel_sums(images))
    shape = tf.shape(images, out_type=tf.int64)
    pixels = tft.sum(tf.fill([shape[0]], shape[1] * shape[2]))
    mean, mean_square = (
        tf.cast(x, tf.float64) / tf.cast(pixels, tf.float64) for x in (sums, squares)
    )
    return tf.cast(mean, tf.float32), tf.cast(mean_square - mean * mean, tf.float32)


def _repeat_for(batch: tf.Tensor, constant: tf.Tensor) -> tf.Tensor:
    return tf.tile(tf.reshape(constant, [1, CHANNELS]), [tf.shape(batch)[0], 1])
