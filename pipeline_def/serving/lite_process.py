"""Converts a SavedModel for LiteRT: `lite_process.py MODEL KIND IMAGES FILE`, run by its path.

It is a process of its own because TensorFlow's converter aborts the process at an operation that
LiteRT lacks, which would end a training without a model.
"""

import sys

import numpy as np


def convert(model: str, kind: str, images: str, file: str) -> None:
    """Write a version, float16, dynamic or int8, of the SavedModel in the folder `model`.

    `images` is a file of an array, uint8 [images, size, size, 3], to calibrate ranges.
    """
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(model, signature_keys=["serving_default"])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        # Reject operations that need more than 8 bits.
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        some = np.load(images)
        converter.representative_dataset = lambda: ([image[np.newaxis]] for image in some)
    with open(file, "wb") as target:
        target.write(converter.convert())


if __name__ == "__main__":
    convert(*sys.argv[1:])
