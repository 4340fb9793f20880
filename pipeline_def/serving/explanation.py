"""Heat maps: what in an image spoke for the label, computed in the graph of the exported model.

Two methods, by the resolution of the last feature map. Grad-CAM (Selvaraju et al., 2017,
https://arxiv.org/abs/1610.02391) costs little more than an answer, and shows as many places as that
map has. Below seven by seven these are too few, as in small networks for small images: there it is
integrated gradients (Sundararajan et al., 2017, https://arxiv.org/abs/1703.01365), pixel by pixel,
for which the model is run `STEPS` times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

COARSEST = 7
"""Side of the coarsest feature map that is shown, places."""

STEPS = 16
"""Images between a gray one and the one that is explained."""

# Pixels by which integrated gradients are blurred, as a fraction of the side of the image.
_BLUR = 1 / 32


def make_explain(
    model: tf_keras.Model,
    see: Callable[[tf.Tensor], tf.Tensor],
    answer: Callable[..., Mapping[str, tf.Tensor]],
) -> Any:
    """Make the signature `explain`; None for a model that heat maps cannot be made of.

    Args:
        model: uint8 [batch, size, size, 3] → logits [batch, classes].
        see: string [batch], files → what the model sees of them, uint8 [batch, size, size, 3].
        answer: the signature that answers, of which `label`, `probabilities` and `error` are taken;
            called, not traced again, which would take a tenth of a second.

    Returns:
        `image_bytes` string [batch] → `label` string [batch]; `heat_map` float32 [batch, size,
        size], where the image speaks for that label, see `draw_heat_maps`; `seen_bytes` string
        [batch], PNG files of what the model sees, which the heat maps belong to; `error` string
        [batch], why a file was not decoded, whose heat map is 0 then.
    """

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")], autograph=False
    )
    def explain(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        images = see(image_bytes)
        answered = answer(image_bytes=image_bytes)
        columns = tf.argmax(answered["probabilities"], axis=1)
        good = tf.equal(answered["error"], "")[:, tf.newaxis, tf.newaxis]
        return {
            "label": answered["label"],
            "error": answered["error"],
            "heat_map": tf.where(good, draw_heat_maps(model, images, columns), 0.0),
            "seen_bytes": tf.io.encode_png(images),
        }

    try:
        # A function that is traced already: of any other TensorFlow traces another copy to save it.
        return explain.get_concrete_function()
    except LookupError:
        return None


def draw_heat_maps(model: tf_keras.Model, images: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Show where each image speaks for a class.

    Args:
        model: uint8 [batch, size, size, 3] → logits [batch, classes].
        images: uint8 [batch, size, size, 3]; called within a `tf.function`.
        columns: int64 [batch], the class of each.

    Returns:
        float32 [batch, size, size], from 0 to 1, which the hottest place of each image has; all 0
        for an image that does not speak for its class anywhere.

    Raises:
        LookupError: the model does not turn images, as they are, into floats.
    """
    if _find_side(model) >= COARSEST:
        heat = _grad_cam(model, images, columns)
        heat = tf.image.resize(heat[..., tf.newaxis], images.shape[1:3])[..., 0]
    else:
        spec = tf.TensorSpec(images.shape[1:3], tf.float32)
        heat = tf.map_fn(
            lambda one: _integrate(model, *one), (images, columns), fn_output_signature=spec
        )
    return tf.math.divide_no_nan(heat, tf.reduce_max(heat, axis=[1, 2], keepdims=True))


def _grad_cam(model: tf_keras.Model, images: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Weigh the last feature map by how much each channel speaks for the class, [batch, h, w]."""
    traced = _trace(model, images)
    for features in reversed(traced.maps):
        [gradients] = tf.gradients(_score(traced.logits, columns), features)
        if gradients is not None:
            weights = tf.reduce_mean(gradients, axis=[1, 2], keepdims=True)
            return tf.nn.relu(tf.reduce_sum(weights * features, axis=-1))
    raise LookupError("The logits do not depend on a feature map.")


def _integrate(model: tf_keras.Model, image: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
    """Add up the gradients on the way from the mean colour of an image to it, [size, size]."""
    pixels = tf.cast(image, tf.float32)
    away = pixels - tf.reduce_mean(pixels, axis=[0, 1])
    fractions = (tf.range(STEPS, dtype=tf.float32) + 0.5) / STEPS
    # Rounded to whole numbers, as that is what models take; half a level in 255 changes nothing.
    path = pixels - (1 - fractions[:, tf.newaxis, tf.newaxis, tf.newaxis]) * away
    traced = _trace(model, tf.saturate_cast(tf.round(path), tf.uint8))
    [gradients] = tf.gradients(_score(traced.logits, tf.repeat(column, STEPS)), traced.pixels)
    attributed = tf.reduce_sum(away * tf.reduce_mean(gradients, axis=0), axis=-1)
    return tf.nn.relu(_blur(attributed, max(1, round(image.shape[0] * _BLUR))))


def _blur(values: tf.Tensor, radius: int) -> tf.Tensor:
    """Average [size, size] over squares, twice."""
    side, blurred = 2 * radius + 1, values[tf.newaxis, ..., tf.newaxis]
    for _ in range(2):
        blurred = tf.nn.avg_pool2d(blurred, side, 1, "SAME")
    return blurred[0, ..., 0]


def _score(logits: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.gather(logits, columns, axis=1, batch_dims=1))


class _Traced(NamedTuple):
    """Tensors of a model's graph."""

    logits: tf.Tensor
    pixels: tf.Tensor
    """The images as floats, before anything else is done with them."""
    maps: list[tf.Tensor]
    """Feature maps [batch, side, side, channels], in the order in which they are computed."""


def _trace(model: tf_keras.Model, images: tf.Tensor) -> _Traced:
    """Call `model` within a `tf.function`, and find what gradients are taken of.

    Images are integers, which have no gradient; somewhere they become floats.
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
        raise LookupError("The model does not turn whole images into floats by itself.")
    tensors = [tensor for operation in operations for tensor in operation.outputs]
    return _Traced(logits, casts[0], [tensor for tensor in tensors if _is_map(tensor)])


def _is_map(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating and _side_of(tensor.shape) > 1


def _side_of(shape: Any) -> int:
    """Return the side of square feature maps; 0 for anything else."""
    sides = tf.TensorShape(shape)
    if sides.rank != 4 or sides[1] is None or sides[1] != sides[2]:
        return 0
    return int(sides[1])


def _find_side(model: tf_keras.Model) -> int:
    """Return the side of the last feature map; 0 where Keras does not tell."""
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
    except (AttributeError, TypeError, ValueError):  # It was called more than once, or has several.
        return None
