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

    def text(value: str) -> tf.train.Feature:
        # Names that are not valid UTF-8 reach Python as surrogates; the record keeps their bytes.
        data = value.encode("utf-8", "surrogateescape")
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[data]))

    def integer(value: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    features = {
        ENCODED: tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        FORMAT: text(image_format),
        HEIGHT: integer(height),
        WIDTH: integer(width),
        FILENAME: text(filename),
        SHA256: text(sha256),
        LABEL: text(label),
    }
    return tf.train.Example(features=tf.train.Features(feature=features))
