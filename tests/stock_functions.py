"""What a user of TFX's own Transform writes, for the records of ImageExampleGen."""

import tensorflow as tf
import tensorflow_transform as tft

from components.contract.example import ENCODED, LABEL

SIDE = 8


def preprocessing_fn(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Decode and shrink the images, and number the labels."""

    def decode(encoded: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
        return tf.image.resize(image, [SIDE, SIDE]) / 255.0

    pixels = tf.map_fn(decode, tf.reshape(inputs[ENCODED], [-1]), fn_output_signature=tf.float32)
    return {
        "pixels": tf.ensure_shape(pixels, [None, SIDE, SIDE, 3]),
        "label": tft.compute_and_apply_vocabulary(tf.reshape(inputs[LABEL], [-1])),
    }
