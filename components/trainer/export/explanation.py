"""Heat maps of the areas that contributed to the label, computed in the exported graph.

The resolution of the last feature map decides between two methods. Grad-CAM (Selvaraju et al.,
2017, https://arxiv.org/abs/1610.02391) costs little more than a prediction, and has the resolution
of that map. Below seven by seven, as in networks for small images, that is too coarse: integrated
gradients (Sundararajan et al., 2017, https://arxiv.org/abs/1703.01365) explain single pixels, but
run the model `_STEPS` times.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

# Smallest side of a feature map for Grad-CAM.
_MIN_SIDE = 7
# Images between a gray one and the explained one.
_STEPS = 16
# Blur of integrated gradients, as a fraction of the side of the image.
_BLUR = 1 / 32


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
        LookupError: the model does not cast whole images to floats.
    """
    if _find_side(model) >= _MIN_SIDE:
        heat = _grad_cam(model, images, columns)
        heat = tf.image.resize(heat[..., tf.newaxis], images.shape[1:3])[..., 0]
    else:
        spec = tf.TensorSpec(images.shape[1:3], tf.float32)
        heat = tf.map_fn(
            lambda one: _integrate(model, *one), (images, columns), fn_output_signature=spec
        )
    return tf.math.divide_no_nan(heat, tf.reduce_max(heat, axis=[1, 2], keepdims=True))


def _grad_cam(model: tf_keras.Model, images: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Weight the channels of the last feature map by their gradients, [batch, h, w]."""
    traced = _trace(model, images)
    for features in reversed(traced.maps):
        [gradients] = tf.gradients(_score(traced.logits, columns), features)
        if gradients is not None:
            weights = tf.reduce_mean(gradients, axis=[1, 2], keepdims=True)
            return tf.nn.relu(tf.reduce_sum(weights * features, axis=-1))
    raise LookupError("The logits do not depend on a feature map.")


def _integrate(model: tf_keras.Model, image: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
    """Integrate gradients from the mean color of an image to the image, [size, size]."""
    pixels = tf.cast(image, tf.float32)
    away = pixels - tf.reduce_mean(pixels, axis=[0, 1])
    fractions = (tf.range(_STEPS, dtype=tf.float32) + 0.5) / _STEPS
    # Models take integers; rounding by half a level of 255 makes no difference.
    path = pixels - (1 - fractions[:, tf.newaxis, tf.newaxis, tf.newaxis]) * away
    traced = _trace(model, tf.saturate_cast(tf.round(path), tf.uint8))
    [gradients] = tf.gradients(_score(traced.logits, tf.repeat(column, _STEPS)), traced.pixels)
    attributed = tf.reduce_sum(away * tf.reduce_mean(gradients, axis=0), axis=-1)
    return tf.nn.relu(_blur(attributed, max(1, round(image.shape[0] * _BLUR))))


def _blur(values: tf.Tensor, radius: int) -> tf.Tensor:
    """Blur [size, size] with a box filter, twice."""
    side, blurred = 2 * radius + 1, values[tf.newaxis, ..., tf.newaxis]
    for _ in range(2):
        blurred = tf.nn.avg_pool2d(blurred, side, 1, "SAME")
    return blurred[0, ..., 0]


def _score(logits: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.gather(logits, columns, axis=1, batch_dims=1))


class _Traced(NamedTuple):
    """Tensors in the graph of a model."""

    logits: tf.Tensor
    pixels: tf.Tensor
    """The images right after the cast to floats."""
    maps: list[tf.Tensor]
    """Feature maps [batch, side, side, channels], in order of computation."""


def _trace(model: tf_keras.Model, images: tf.Tensor) -> _Traced:
    """Call `model` within a `tf.function`, and find the tensors to differentiate by.

    Integer images have no gradient, but somewhere the model casts them to floats.
    """
    graph = images.graph
    before = len(graph.get_operations())
    logits = model(images, training=False)
    operations = graph.get_operations()[before:]
    casts = [
        operation.outputs[0]
        for operation in operations
        if operation.type == "Cast"
        and operation.inputs[0].dtype == tf.uint8
        and operation.outputs[0].dtype.is_floating
        and operation.outputs[0].shape[1:] == images.shape[1:]
    ]
    if not casts:
        raise LookupError("The model does not cast whole images to floats.")
    tensors = [tensor for operation in operations for tensor in operation.outputs]
    maps = [t for t in tensors if t.dtype.is_floating and _side_of(t.shape) > 1]
    return _Traced(logits, casts[0], maps)


def _side_of(shape: Any) -> int:
    """Return the side of square feature maps, or 0."""
    sides = tf.TensorShape(shape)
    if sides.rank != 4 or sides[1] is None or sides[1] != sides[2]:
        return 0
    return int(sides[1])


def _find_side(model: tf_keras.Model) -> int:
    """Return the side of the last feature map, or 0 if Keras does not know it."""
    sides = [side for layer in _walk(model) if (side := _side_of(_output_shape(layer))) > 1]
    return sides[-1] if sides else 0


def _walk(model: tf_keras.Model) -> Iterator[Any]:
    for layer in model.layers:
        if isinstance(layer, tf_keras.Model):
            yield from _walk(layer)
        else:
            yield layer


def _output_shape(layer: Any) -> Any:
    try:
        return tf.TensorShape(layer.output_shape)
    except (AttributeError, TypeError, ValueError):  # Called more than once, or several outputs.
        return None
