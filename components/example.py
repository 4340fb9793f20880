"""The Example contract: the feature keys of a record and the one function that builds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

# The keys of TensorFlow's own image record format (tensorflow/models, `tf_example_decoder.py`).
ENCODED = "image/encoded"
FORMAT = "image/format"
HEIGHT = "image/height"
WIDTH = "image/width"
FILENAME = "image/filename"
SHA256 = "image/key/sha256"
LABEL = "image/class/text"
LABEL_ID = "image/class/label"

# Per-channel statistics of the training split, computed by Transform. They are the same for
# every example, so they live in the transform graph only and are never written into records.
MEAN = "image/mean"
VARIANCE = "image/variance"
DATASET_CONSTANTS = frozenset({MEAN, VARIANCE})

# The file, next to the split folders of an Examples artifact, that counts records per shard.
INDEX_FILE = "index.json"


def make_example(
    *,
    encoded: bytes,
    image_format: str,
    height: int,
    width: int,
    filename: str,
    sha256: str,
    label: str,
) -> tf.train.Example:
    """Build the record of one image.

    Args:
        encoded: the image file, JPEG or PNG.
        image_format: "jpeg" or "png".
        height: pixels.
        width: pixels.
        filename: path relative to the folder that was ingested, with "/" between its parts.
        sha256: hexadecimal digest of the file as it was found.
        label: name of the class.
    """
    import tensorflow as tf

    features = {
        ENCODED: _bytes(encoded),
        FORMAT: _text(image_format),
        HEIGHT: _integer(height),
        WIDTH: _integer(width),
        FILENAME: _text(filename),
        SHA256: _text(sha256),
        LABEL: _text(label),
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


def _text(value: str) -> tf.train.Feature:
    # Names that are not valid UTF-8 reach Python as surrogates; the record keeps their bytes.
    return _bytes(value.encode("utf-8", "surrogateescape"))


def _bytes(value: bytes) -> tf.train.Feature:
    import tensorflow as tf

    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _integer(value: int) -> tf.train.Feature:
    import tensorflow as tf

    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
