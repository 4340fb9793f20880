"""Batch inference: runs the models over a shard of examples.

A Beam element is a shard, never an image. Nothing is shuffled: results are files named after their
shards, so any runner will do, and a repeated shard replaces its earlier results.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import tensorflow as tf
from apache_beam.utils.shared import Shared
from numpy.typing import NDArray

from components.contract.example import (
    COLUMNS,
    FILENAME,
    FORMAT,
    HEIGHT,
    LABEL,
    LABEL_VOCABULARY,
    LUMINANCE,
    WIDTH,
    encode_text,
)
from components.contract.model_files import EXAMPLES_SIGNATURE, KNOWN_SCORE
from components.evaluation.prediction_writer import open_part
from components.host.progress import add_progress
from components.metrics.predictions import Scores
from components.metrics.slices import MISSING_NUMBER, Columns, describe_slices
from components.records.tfrecord import without_tuning

BATCH = 64
"""Examples per call of a model, as many as Transform decodes at once. With 128 images of 192
pixels a MobileNetV2 took 2,376 MiB, with 64 1,590 MiB."""

_READ_BYTES = 2**23
_AHEAD = 2

_TEXT = tf.io.FixedLenFeature([], tf.string)
_NUMBER = tf.io.FixedLenFeature([], tf.int64)
_COLUMN = {
    "str": tf.io.FixedLenFeature([], tf.string, ""),
    "int": tf.io.FixedLenFeature([], tf.int64, MISSING_NUMBER),
    "float": tf.io.FixedLenFeature([], tf.float32, float("nan")),
}
_SPEC = {
    **dict.fromkeys((FILENAME, FORMAT, LABEL), _TEXT),
    **dict.fromkeys((HEIGHT, WIDTH), _NUMBER),
    LUMINANCE: tf.io.FixedLenFeature([], tf.float32, float("nan")),
}


@dataclass(frozen=True)
class Job:
    """The models to run, and where their results go."""

    models: Sequence[str]
    """Paths of the candidate and, if there is one, the current model."""
    evaluation_uri: str
    """Folder for the parts of the predictions."""
    total: int
    """Number of all examples, for the progress display."""
    columns: Columns = field(default_factory=dict)
    """Columns that are slicings."""


def predict_shards(pipeline: beam.Pipeline, shards: Sequence[str], job: Job) -> None:
    """Predict every example of `shards`, paths of TFRecord files."""
    _ = (
        pipeline
        | "Shards" >> beam.Create(list(shards))
        # Without it a single worker would get all of them.
        | "Spread" >> beam.Reshuffle()
        | "Predict" >> beam.ParDo(PredictShard(job))
    )


def read_batches(
    shard: str, columns: Columns
) -> Iterator[tuple[tf.Tensor, dict[str, NDArray[Any]]]]:
    """Yield the serialized examples of a shard, string [BATCH] or fewer, and their features.

    The features are those of `describe_slices`, [examples] each, without the images.
    """
    spec = _SPEC | {COLUMNS + name: _COLUMN[column["type"]] for name, column in columns.items()}
    records = tf.data.TFRecordDataset(shard, buffer_size=_READ_BYTES)
    for examples in without_tuning(records.batch(BATCH).prefetch(_AHEAD)):
        features = tf.io.parse_example(examples, spec)
        yield examples, {name: tensor.numpy() for name, tensor in features.items()}


class _ServedModel:
    """The signatures of a SavedModel of ImageTrainer."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Signatures alone do not keep the model's variables alive.
        self._model = tf.saved_model.load(path)

    def predict(self, examples: tf.Tensor) -> dict[str, Scores]:
        """Return the outputs for `examples`, string [examples].

        They are `probabilities`, [examples, classes], and possibly `known_score`, [examples].
        """
        outputs = self._model.signatures[EXAMPLES_SIGNATURE](examples=examples)
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def read_labels(self) -> list[bytes]:
        """Return the labels of the columns, an asset: `serving_default` takes a second to start."""
        path = os.path.join(self._path, tf.saved_model.ASSETS_DIRECTORY, LABEL_VOCABULARY)
        labels: list[bytes] = tf.io.read_file(path).numpy().removesuffix(b"\n").split(b"\n")
        return labels


class _Models(list[_ServedModel]):
    """A list that can be shared: Beam keeps a weak reference to it."""


class PredictShard(beam.DoFn):
    """Runs the models over a shard, batch by batch; its results are files, it yields nothing."""

    def __init__(self, job: Job) -> None:
        """Process shards of `job`."""
        self._job = job
        # The threads of a worker process share one copy of the models.
        self._shared = Shared()

    def setup(self) -> None:
        """Load the models."""
        self._models = self._shared.acquire(
            lambda: _Models(_ServedModel(path) for path in self._job.models)
        )

    def process(self, shard: str) -> Iterator[None]:
        """Write the predictions of a shard."""
        batches = read_batches(shard, self._job.columns)
        first = next(batches, None)
        if first is None:
            return
        labels = [model.read_labels() for model in self._models]
        # The shards of several splits have the same names.
        name = "-".join(shard.rsplit("/", 2)[1:])
        with open_part(self._job.evaluation_uri, name, labels) as part:
            for examples, features in itertools.chain([first], batches):
                self._predict(part, examples, features)
        yield from ()

    def _predict(self, part: Any, examples: Any, features: dict[str, Any]) -> None:
        outputs = [model.predict(examples) for model in self._models]
        texts = {"filename": features[FILENAME].tolist(), "label": features[LABEL].tolist()}
        slices = describe_slices(features, self._job.columns)
        texts |= {name: list(map(encode_text, values)) for name, values in slices.items()}
        part.add(
            texts, [output["probabilities"] for output in outputs], outputs[0].get(KNOWN_SCORE)
        )
        done, total = len(texts["label"]), self._job.total
        add_progress(self._job.evaluation_uri, done, total=total, unit="images")
