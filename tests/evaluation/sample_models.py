"""Models with known predictions and the exported signatures, and examples for them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tfx import types
from tfx.components.util import examples_utils
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_artifacts

from components.contract import example
from components.contract.configuration import to_json
from components.contract.properties import FOUND_PROPERTY
from components.evaluation.config import EvaluationConfig
from components.evaluation.executor import Executor
from components.metrics.predictions import Predictions
from components.records.shard_files import write_index
from pipeline_def.config.config import Config

_BYTES = tf.io.FixedLenFeature([], tf.string)


class Model(tf.Module):
    """Reads the float32 logits of `columns` classes from an "image", in the order of its labels."""

    def __init__(self, labels: Sequence[str], *, columns: int | None = None) -> None:
        super().__init__()
        self.labels = [label.encode("utf-8", "surrogateescape") for label in labels]
        self.columns = columns or len(labels)
        # Lost if only the signatures of the model are kept.
        self.scale = tf.Variable(1.0)
        ids = tf.lookup.KeyValueTensorInitializer(
            self.labels, tf.range(len(labels), dtype=tf.int64)
        )
        self.table = tf.lookup.StaticHashTable(ids, -1)

    def scores(self, encoded: tf.Tensor) -> tf.Tensor:
        logits = tf.reshape(tf.io.decode_raw(encoded, tf.float32), [-1, self.columns])
        return tf.nn.softmax(logits[:, : len(self.labels)] * self.scale)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def serving_default(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        scores = self.scores(image_bytes)
        texts = tf.tile(tf.constant([self.labels]), [tf.shape(scores)[0], 1])
        return {"labels": texts, "probabilities": scores}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serving_examples(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        features = tf.io.parse_example(examples, {example.ENCODED: _BYTES})
        return {"probabilities": self.scores(features[example.ENCODED])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform_features(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        features = tf.io.parse_example(examples, {example.LABEL: _BYTES})
        return {example.LABEL_ID: self.table.lookup(features[example.LABEL])}

    def save(self, folder: Path) -> types.Artifact:
        names = ("serving_default", "serving_examples", "transform_features")
        signatures = {name: getattr(self, name) for name in names}
        vocabulary = folder / example.LABEL_VOCABULARY
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary.write_bytes(b"".join(label + b"\n" for label in self.labels))
        self.vocabulary = tf.saved_model.Asset(str(vocabulary))
        tf.saved_model.save(self, str(folder / "Format-Serving"), signatures=signatures)
        artifact = standard_artifacts.Model()
        artifact.uri = str(folder)
        return artifact


def write_examples(
    folder: Path, split: str, predictions: Predictions, *, train: int = 0
) -> types.Artifact:
    """Write two shards of examples for which `Model` returns `predictions`, and a train split.

    The last `train` examples are in the train split.
    """
    rows = np.arange(len(predictions.ids))
    shards = {split: _write_shards(folder, split, predictions, rows[: len(rows) - train])}
    labels = {"train": dict.fromkeys(predictions.labels, 5)}
    if train:
        shards["train"] = _write_shards(folder, "train", predictions, rows[-train:])
        labels["train"] = _count(predictions, rows[-train:])
    labels[split] = _count(predictions, rows[: len(rows) - train])
    write_index(str(folder), shards, labels=labels)
    artifact = standard_artifacts.Examples()
    artifact.uri = str(folder)
    artifact.split_names = artifact_utils.encode_split_names(["train", split])
    examples_utils.set_payload_format(artifact, example_gen_pb2.FORMAT_TF_EXAMPLE)
    examples_utils.set_file_format(artifact, "tfrecords_gzip")
    return artifact


def _write_shards(folder: Path, split: str, predictions: Predictions, rows: Any) -> dict[str, int]:
    shards = {}
    for number, part in enumerate(np.array_split(rows, 2)):
        path = folder / f"Split-{split}" / f"data_tfrecord-{number:05d}-of-00002"
        path.parent.mkdir(parents=True, exist_ok=True)
        shards[path.name] = len(part)
        with tf.io.TFRecordWriter(str(path)) as writer:
            for row in part:
                writer.write(_serialize(predictions, row))
    return shards


def _count(predictions: Predictions, rows: Any) -> dict[str, int]:
    texts = [predictions.labels[column] for column in predictions.ids[rows]]
    return {label: texts.count(label) for label in sorted(set(texts))}


def _serialize(predictions: Predictions, row: int) -> bytes:
    """Every fourth image is a PNG; sides grow from 20 to 219 pixels; a third has no luminance."""
    label = predictions.labels[predictions.ids[row]].encode("utf-8", "surrogateescape")
    record = tf.train.Example()
    features = record.features.feature
    for name, data in {
        example.ENCODED: np.log(predictions.probabilities[row]).tobytes(),
        example.LABEL: label,
        example.FILENAME: b"camera %d/%05d.jpg" % (row % 2, row),
        example.SHA256: b"%064x" % row,
        example.FORMAT: b"jpeg" if row % 4 else b"png",
    }.items():
        features[name].bytes_list.value.append(data)
    for name, number in {example.HEIGHT: 20 + row % 200, example.WIDTH: 300}.items():
        features[name].int64_list.value.append(number)
    if row % 3:
        features[example.LUMINANCE].float_list.value.append(row % 256)
    serialized: bytes = record.SerializeToString()
    return serialized


def evaluate(
    folder: Path,
    examples: types.Artifact,
    model: types.Artifact,
    *,
    baseline: types.Artifact | None = None,
    config: EvaluationConfig | None = None,
    beam_args: Sequence[str] = tuple(Config().beam_pipeline_args),
) -> tuple[types.Artifact, types.Artifact]:
    """Run ImageEvaluator; return the evaluation and the blessing."""
    in_use = baseline or standard_artifacts.Model()
    in_use.set_int_custom_property(FOUND_PROPERTY, int(baseline is not None))
    evaluation, blessing = standard_artifacts.ModelEvaluation(), standard_artifacts.ModelBlessing()
    evaluation.uri, blessing.uri = str(folder / "evaluation"), str(folder / "blessing")
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(beam_args))
    Executor(context).Do(
        {"examples": [examples], "model": [model], "baseline_model": [in_use]},
        {"evaluation": [evaluation], "blessing": [blessing]},
        {"config": to_json(config or EvaluationConfig())},
    )
    return evaluation, blessing
