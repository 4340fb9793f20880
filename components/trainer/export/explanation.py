"""Heat maps of the areas that contributed to the label, computed in the exported graph.

They are gradients times features, added up over the channels of the last feature map that has at
least seven by seven places: HiResCAM (Draelos and Carin, 2020, https://arxiv.org/abs/2011.08891).
It costs little more than a prediction.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tf_keras

# Smallest side of a feature map, unless images are smaller.
_MIN_SIDE = 7


def make_explain(
    model: tf_keras.Model,
    decode_images: Callable[[tf.Tensor], tf.Tensor],
    predict: Callable[..., Mapping[str, tf.Tensor]],
) -> Any:
    """Return the signature `explain`, or None if the model does not allow heat maps.

    Args:
        model: uint8 [batch, size, size, 3] → logits [batch, classes].
        decode_images: files, string [batch] → the images that the model sees, at least one.
        predict: the signature `serving_default`, which is not traced again.

    Returns:
        `image_bytes` string [batch] → `label` string [batch]; `heat_map` float32 [batch, size,
        size] for that label, see `draw_heat_maps`, 0 for a file that was not decoded; `seen_bytes`
        string [batch], PNG files of the images that the model sees, which the heat maps match;
        `error` string [batch], why a file was not decoded.
    """

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")], autograph=False
    )
    def explain(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        images = decode_images(image_bytes)
        predicted = predict(image_bytes=image_bytes)
        columns = tf.argmax(predicted["probabilities"], axis=1)
        # There is an image even if there is no file.
        columns = tf.pad(columns, [[0, tf.shape(images)[0] - tf.size(columns)]])
        good = tf.equal(predicted["error"], "")[:, tf.newaxis, tf.newaxis]
        return {
            "label": predicted["label"],
            "error": predicted["error"],
            "heat_map": tf.where(good, draw_heat_maps(model, images, columns), 0.0),
            "seen_bytes": tf.io.encode_png(images)[: tf.size(image_bytes)],
        }

    try:
        # TensorFlow would trace a function that is not concrete once more to save it.
        return explain.get_concrete_function()
    except LookupError:
        return None


def draw_heat_maps(model: tf_keras.Model, images: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Return how much each area of an image contributed to a class.

    Args:
        model: uint8 [batch, size, size, 3] → logits [batch, classes].
        images: uint8 [batch, size, size, 3], within a `tf.function`.
        columns: int64 [batch], the class for each image.

    Returns:
        float32 [batch, size, size], from 0 to 1 at the maximum of each image; all 0 for an image
        in which nothing contributed.

    Raises:
        LookupError: the logits depend on no feature map.
    """
    before = len(images.graph.get_operations())
    logits = model(images, training=False)
    score = tf.reduce_sum(tf.gather(logits, columns, axis=1, batch_dims=1))
    size, operations = images.shape[1], images.graph.get_operations()[before:]
    tensors = [tensor for operation in operations for tensor in operation.outputs]
    for features in reversed([t for t in tensors if _side_of(t) >= min(_MIN_SIDE, size)]):
        [gradients] = tf.gradients(score, features)
        if gradients is not None:
            heat = tf.nn.relu(tf.reduce_sum(gradients * features, axis=-1, keepdims=True))
            heat = tf.image.resize(tf.cast(heat, tf.float32), [size, size])[..., 0]
            return tf.math.divide_no_nan(heat, tf.reduce_max(heat, axis=[1, 2], keepdims=True))
    raise LookupError("The logits do not depend on a feature map.")


def _side_of(tensor: tf.Tensor) -> int:
    """Return the side of square feature maps, or 0."""
    sides = tensor.shape
    if not tensor.dtype.is_floating or sides.rank != 4 or sides[1] is None or sides[1] != sides[2]:
        return 0
    return int(sides[1])
