"""Transform's preprocessing_fn: label vocabulary and canonical files."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from components.contract.configuration import from_dict
from components.contract.example import ENCODED, FILENAME, LABEL, LABEL_ID
from components.images.canonical import canonicalize
from components.transform.config import LABEL_VOCABULARY, TransformConfig


def preprocessing_fn(
    inputs: dict[str, tf.Tensor], custom_config: dict[str, Any]
) -> dict[str, tf.Tensor]:
    """Turn raw features, each [batch, 1], into what trainers and the served model read.

    Args:
        inputs: the features of `components.contract.example`.
        custom_config: the fields of `TransformConfig`.

    Returns:
        `image/encoded` string [batch], canonical; `image/class/label` int64 [batch], in the
        vocabulary's order; `image/filename` string [batch], if the examples have it.
    """
    config = from_dict(TransformConfig, custom_config)
    canonical = canonicalize(tf.reshape(inputs[ENCODED], [-1]), config)
    labels = tf.reshape(inputs[LABEL], [-1])
    outputs = {
        ENCODED: canonical,
        LABEL_ID: tft.compute_and_apply_vocabulary(labels, vocab_filename=LABEL_VOCABULARY),
    }
    if FILENAME in inputs:
        outputs[FILENAME] = tf.reshape(inputs[FILENAME], [-1])
    return outputs
