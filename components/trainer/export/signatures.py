"""The signatures of the exported model: image bytes in, label texts and probabilities out."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras

from components.contract.artifact_files import on_disk
from components.contract.example import ENCODED, LABEL, LABEL_ID, LABEL_VOCABULARY, decode_text
from components.contract.model_files import KNOWN, KNOWN_SCORE
from components.images.canonical import decode
from components.images.options import TransformConfig
from components.storage.folder import replace_file
from components.storage.saved_model import IDENTITY
from components.storage.transfer import remove_folder
from components.trainer.export.decoding import Decoded, decode_files
from components.trainer.export.explanation import make_explain
from components.trainer.export.known import Known

Transform = Callable[[Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]]
"""From raw features, each [batch, 1], to transformed ones."""

_BYTES = [tf.TensorSpec([None], tf.string, name="image_bytes")]
_EXAMPLES = [tf.TensorSpec([None], tf.string, name="examples")]


class TransformGraph:
    """The artifact `transform_graph`: feature specs, labels, and the graph itself."""

    def __init__(self, uri: str) -> None:
        """Read the folder `uri`."""
        # Takes seconds, and only a training reads a graph.
        import tensorflow_transform as tft

        self._output = tft.TFTransformOutput(uri)
        self.labels: list[bytes] = self._output.vocabulary_by_name(LABEL_VOCABULARY)
        """Text of each label id."""
        self.transformed_spec: dict[str, Any] = self._output.transformed_feature_spec()
        """Feature spec of transformed examples."""
        self.raw_spec: dict[str, Any] = self._output.raw_feature_spec()
        """Feature spec of raw examples."""

    def load(self) -> tuple[Transform, dict[str, Any]]:
        """Return the graph as a function, and the objects to save with its callers."""
        from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

        loader = SavedModelLoader(self._output.transform_savedmodel_dir)
        return loader.apply_transform_model, vars(loader)


@dataclass(frozen=True)
class Classifier:
    """A trained model as it is served: calibrated."""

    model: tf_keras.Model
    """uint8 [batch, size, size, 3] → logits [batch, classes]."""
    temperature: float = 1.0
    """Divisor of the logits."""
    known: Known | None = None
    """Tells which images are like those of training; None: there is no decision."""

    @property
    def variables(self) -> list[tf.Variable]:
        """All weights."""
        return [*self.model.variables, *(self.known.variables if self.known else ())]

    def answer(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `probabilities`, float32 [batch, classes], within a `tf.function`.

        If there is a decision, also `known_score`, float32 [batch], and `known`, bool [batch].
        """
        logits = self.model(images, training=False)
        outputs = {"probabilities": tf.nn.softmax(logits / self.temperature)}
        return outputs | (self.known.answer(logits) if self.known else {})

    def probabilities(self, images: tf.Tensor) -> tf.Tensor:
        """Return float32 [batch, classes]."""
        return tf.nn.softmax(self.model(images, training=False) / self.temperature)


def export_model(
    classifier: Classifier,
    graph: TransformGraph,
    *,
    config: TransformConfig,
    origin: Mapping[str, Any],
    directory: str,
) -> None:
    """Save `classifier` behind the transform graph, as a SavedModel.

    `origin` are options and code that decide what the graph computes: with the same labels and
    numbers, two exports count as the same model.

    Signatures:
        serving_default: `image_bytes` string [batch], JPEG, PNG, GIF or BMP files of any size →
            `label` string [batch], the most probable; `probabilities` float32 [batch, classes];
            `labels` string [batch, classes], the text of each column; `error` string [batch],
            empty, or why a file was not decoded: its label is empty, its probabilities are 0;
            unless `export.false_alarms` is 0, `known` bool [batch], whether the image is like
            those of training, and `known_score` float32 [batch], 0 for a file that was not decoded.
        serving_examples: `examples` string [batch], serialized raw `tf.train.Example` records →
            `probabilities`, `known` and `known_score` likewise. For TFMA and the Evaluator.
        transform_features: `examples` likewise → `image/class/label` int64 [batch]. For TFMA.
        explain: `image_bytes` likewise → a heat map for the label, see `make_explain`.
    """
    transform, tracked = graph.load()
    signatures = make_signatures(
        classifier, transform, labels=graph.labels, raw_spec=graph.raw_spec, config=config
    )
    # The signatures need weights and the vocabulary's table, saved if tracked. TensorFlow would
    # trace every function of Keras's own objects again: 8 s instead of 0.6.
    served = tf.Module()
    served.weights, served.transform = classifier.variables, tracked
    numbers = classifier.temperature, classifier.known and classifier.known.threshold
    facts = json.dumps([dict(origin), list(map(decode_text, graph.labels)), numbers])
    save_atomically(served, directory, signatures, hashlib.sha256(facts.encode()).hexdigest())


def save_atomically(
    model: tf.Module, directory: str, signatures: Mapping[str, Any], identity: str = ""
) -> None:
    """Save `model` and its identity, replacing what an earlier attempt left in `directory`.

    On disk, the folder is renamed when it is complete. A bucket cannot do that: there,
    `saved_model.pb`, which TensorFlow writes last, marks a complete model.
    """
    target = directory.rstrip("/")
    unfinished = f"{target}.unfinished" if on_disk(target) else target
    for left_behind in {target, unfinished}:
        remove_folder(left_behind)
    tf.saved_model.save(model, unfinished, signatures=signatures)
    replace_file(os.path.join(unfinished, IDENTITY), identity.encode())
    if unfinished != target:
        tf.io.gfile.rename(unfinished, target)


def write_warmup(saved_model: str, images: Sequence[bytes]) -> None:
    """Write two requests that TensorFlow Serving runs before others: one image, and all of them.

    Source: https://www.tensorflow.org/tfx/serving/saved_model_warmup.
    """
    # Loads gRPC's messages, which nothing else in an export needs.
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    folder = os.path.join(saved_model, "assets.extra")
    tf.io.gfile.makedirs(folder)
    with tf.io.TFRecordWriter(os.path.join(folder, "tf_serving_warmup_requests")) as writer:
        for some in (images[:1], images):
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = "serving_default"
            request.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto([*some]))
            log = prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)
            )
            writer.write(log.SerializeToString(deterministic=True))


def make_signatures(
    classifier: Classifier,
    transform: Transform,
    *,
    labels: list[bytes],
    raw_spec: dict[str, Any],
    config: TransformConfig,
) -> dict[str, Any]:
    """Return the signatures of `export_model` by name; `explain` only if the model allows it."""

    # Both are parts that signatures share, each traced once. AutoGraph has nothing to convert here,
    # and takes seconds for each function.
    @tf.function(input_signature=_BYTES, autograph=False)
    def pixels(image_bytes: tf.Tensor) -> tf.Tensor:
        # Features of the schema are [batch, 1]; the label is absent, as always when serving.
        return decode(transform({ENCODED: image_bytes[:, tf.newaxis]})[ENCODED], config)

    @tf.function(input_signature=_BYTES, autograph=False)
    def decoded(image_bytes: tf.Tensor) -> Decoded:
        return decode_files(image_bytes, pixels, config.seen_size)

    @tf.function(input_signature=_EXAMPLES, autograph=False)
    def serving_examples(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        features = tf.io.parse_example(examples, {ENCODED: raw_spec[ENCODED]})
        return classifier.answer(pixels(tf.reshape(features[ENCODED], [-1])))

    @tf.function(input_signature=_EXAMPLES, autograph=False)
    def transform_features(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        features = tf.io.parse_example(examples, {LABEL: raw_spec[LABEL]})
        return {LABEL_ID: transform(features)[LABEL_ID]}

    @tf.function(input_signature=_BYTES, autograph=False)
    def serving_default(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        images, errors = decoded(image_bytes)
        is_good = tf.equal(errors, "")
        answer = classifier.answer(images)
        scores = tf.where(is_good[:, tf.newaxis], answer["probabilities"], 0.0)
        if KNOWN in answer:
            answer[KNOWN_SCORE] = tf.where(is_good, answer[KNOWN_SCORE], 0.0)
            answer[KNOWN] &= is_good
        texts = tf.constant(labels)
        return {
            **answer,
            "label": tf.where(is_good, tf.gather(texts, tf.argmax(scores, axis=1)), ""),
            "labels": tf.tile(texts[tf.newaxis], [tf.size(errors), 1]),
            "probabilities": tf.ensure_shape(scores, [None, len(labels)]),
            "error": errors,
        }

    # Traced once, for itself and for the heat maps.
    predict = serving_default.get_concrete_function()
    explain = make_explain(classifier.model, lambda files: decoded(files).images, predict)
    return {
        "serving_default": predict,
        "serving_examples": serving_examples,
        "transform_features": transform_features,
        **({"explain": explain} if explain else {}),
    }
