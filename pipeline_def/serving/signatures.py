"""The signatures of the exported model: image bytes in, label texts and probabilities out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from components.contract.example import ENCODED, LABEL, LABEL_ID
from components.images.canonical import CHANNELS, decode
from components.storage.artifact_files import on_disk
from components.transform.config import TransformConfig
from pipeline_def.serving.explanation import make_explain
from pipeline_def.serving.isolation import Decoded, decode_good

if TYPE_CHECKING:
    from pipeline_def.serving.transform_graph import TransformGraph

_BYTES = [tf.TensorSpec([None], tf.string, name="image_bytes")]
_EXAMPLES = [tf.TensorSpec([None], tf.string, name="examples")]


def export_model(
    model: tf_keras.Model,
    graph: TransformGraph,
    *,
    config: TransformConfig,
    directory: str,
    views: int = 1,
    temperature: float = 1.0,
) -> None:
    """Save `model` with the transform graph in front of it, as a SavedModel.

    It predicts with the mean logits of 1, 2 or 6 views of an image, see `predict_logits`, divided
    by `temperature`.

    Signatures:
        serving_default: `image_bytes` string [batch], JPEG, PNG, GIF or BMP files of any size →
            `label` string [batch], the most probable; `probabilities` float32 [batch, classes];
            `labels` string [batch, classes], the text of each column; `error` string [batch],
            empty, or why a file was not decoded: its label is empty then, its probabilities are 0.
        serving_examples: `examples` string [batch], serialized raw `tf.train.Example` records →
            `probabilities`. For TFMA.
        transform_features: `examples` likewise → `image/class/label` int64 [batch]. For TFMA.
        explain: `image_bytes` likewise → where an image speaks for its label, see `make_explain`.
    """
    transform, tracked = graph.load()
    signatures = _make_signatures(
        model,
        transform,
        labels=graph.labels,
        raw_spec=graph.raw_spec,
        config=config,
        views=views,
        temperature=temperature,
    )
    # What the signatures use is saved if it is tracked: weights, and the vocabulary's table. Of
    # Keras's own objects TensorFlow would trace every function again: 8 s instead of 0.6.
    served = tf.Module()
    served.weights, served.transform = model.variables, tracked
    save_whole(served, directory, signatures)


def save_whole(model: tf.Module, directory: str, signatures: Mapping[str, Any]) -> None:
    """Save `model` in place of what an earlier attempt has left in `directory`.

    On a disk it appears whole, or not at all. In a bucket, which cannot rename a folder at once,
    `saved_model.pb` makes it whole: TensorFlow writes that file after all that it refers to.
    """
    target = directory.rstrip("/")
    unfinished = f"{target}.unfinished" if on_disk(target) else target
    for left_behind in {target, unfinished}:
        if tf.io.gfile.exists(left_behind):
            tf.io.gfile.rmtree(left_behind)
    tf.saved_model.save(model, unfinished, signatures=signatures)
    if unfinished != target:
        tf.io.gfile.rename(unfinished, target)


def predict_logits(model: tf_keras.Model, images: tf.Tensor, views: int) -> tf.Tensor:
    """Return the mean of the logits of several views of each image, float32 [batch, classes].

    After the evaluation of Jordan (2024), https://arxiv.org/abs/2404.00498: the moved views count
    half, all together.

    Args:
        model: uint8 [batch, size, size, 3] → logits.
        images: uint8 [batch, size, size, 3].
        views: 1: the image. 2: and its mirror image. 6: and both moved by a 32nd of their side, at
            least a pixel, to the upper left and to the lower right; reflection fills the gap.
    """

    def mirrored(images: tf.Tensor) -> tf.Tensor:
        return (model(images, training=False) + model(images[:, :, ::-1], training=False)) / 2

    if views == 1:
        return model(images, training=False)
    if views == 2:
        return mirrored(images)
    size = images.shape[1]
    distance = max(1, round(size / 32))
    margin = [distance, distance]
    padded = tf.pad(images, [[0, 0], margin, margin, [0, 0]], "REFLECT")
    corners = [slice(0, size), slice(2 * distance, None)]
    moved = [mirrored(padded[:, corner, corner]) for corner in corners]
    return (mirrored(images) + tf.add_n(moved) / 2) / 2


class _Graph:
    """What the signatures have in common; each part is traced once."""

    def __init__(
        self,
        model: tf_keras.Model,
        transform: Callable[[Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]],
        config: TransformConfig,
        *,
        views: int,
        temperature: float,
    ) -> None:
        self._model, self._views, self._temperature = model, views, temperature
        self._size = config.seen_size

        # Without AutoGraph, which has nothing to convert here and takes seconds for each function.
        @tf.function(input_signature=_BYTES, autograph=False)
        def pixels(image_bytes: tf.Tensor) -> tf.Tensor:
            # Features of the schema are [batch, 1]; the label is absent, as it is when serving.
            return decode(transform({ENCODED: image_bytes[:, tf.newaxis]})[ENCODED], config)

        @tf.function(input_signature=_BYTES, autograph=False)
        def decoded(image_bytes: tf.Tensor) -> Decoded:
            return decode_good(image_bytes, pixels, self._size)

        self.pixels, self.decoded = pixels, decoded

    def see(self, files: tf.Tensor) -> tf.Tensor:
        """Return what the model sees of files, black in place of those that cannot be decoded."""
        images, places, _ = self.decoded(files)
        rows = tf.cast(places, tf.int32)[:, tf.newaxis]
        shape = tf.concat([tf.shape(files), tf.shape(images)[1:]], axis=0)
        seen = tf.scatter_nd(rows, images[: tf.size(places)], shape)
        return tf.ensure_shape(seen, [None, self._size, self._size, CHANNELS])

    def probabilities(self, images: tf.Tensor) -> tf.Tensor:
        """Return the probabilities of the classes, float32 [batch, classes]."""
        return tf.nn.softmax(predict_logits(self._model, images, self._views) / self._temperature)


def _make_signatures(
    model: tf_keras.Model,
    transform: Callable[[Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]],
    *,
    labels: list[bytes],
    raw_spec: dict[str, Any],
    config: TransformConfig,
    views: int,
    temperature: float = 1.0,
) -> dict[str, Any]:
    graph = _Graph(model, transform, config, views=views, temperature=temperature)

    @tf.function(input_signature=_EXAMPLES, autograph=False)
    def serving_examples(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        features = tf.io.parse_example(examples, {ENCODED: raw_spec[ENCODED]})
        images = graph.pixels(tf.reshape(features[ENCODED], [-1]))
        return {"probabilities": graph.probabilities(images)}

    @tf.function(input_signature=_EXAMPLES, autograph=False)
    def transform_features(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        features = tf.io.parse_example(examples, {LABEL: raw_spec[LABEL]})
        return {LABEL_ID: transform(features)[LABEL_ID]}

    # Traced once, for itself and for the heat maps.
    answering = _serve_default(graph, labels).get_concrete_function()
    functions = {
        "serving_default": answering,
        "serving_examples": serving_examples,
        "transform_features": transform_features,
        "explain": make_explain(model, graph.see, answering),
    }
    return {name: function for name, function in functions.items() if function is not None}


def _serve_default(graph: _Graph, labels: list[bytes]) -> Any:
    @tf.function(input_signature=_BYTES, autograph=False)
    def serving_default(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        images, places, errors = graph.decoded(image_bytes)
        scores = graph.probabilities(images)[: tf.size(places)]
        shape = tf.stack([tf.size(image_bytes), len(labels)])
        scores = tf.scatter_nd(tf.cast(places, tf.int32)[:, tf.newaxis], scores, shape)
        texts = tf.constant(labels)
        best = tf.gather(texts, tf.argmax(scores, axis=1))
        return {
            "label": tf.where(tf.equal(errors, ""), best, ""),
            "labels": tf.tile(texts[tf.newaxis], [shape[0], 1]),
            "probabilities": tf.ensure_shape(scores, [None, len(labels)]),
            "error": errors,
        }

    return serving_default
