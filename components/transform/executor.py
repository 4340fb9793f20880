"""The executor of ImageTransform: TFX's analysis, then one output shard for each input shard."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tfx import types
from tfx.components.transform import executor
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2, transform_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from components.contract.artifacts import Artifacts
from components.contract.machine import available_cpus
from components.contract.progress import add_progress
from components.contract.splits import TRAIN
from components.records.record_index import write_indexed_shard
from components.records.shard_files import UNFINISHED, count_examples, write_index
from components.records.shard_work import ConcurrentDoFn
from components.transform.config import LABEL_VOCABULARY
from components.transform.input_shards import (
    GZIP_SUFFIX,
    Shards,
    describe_shards,
    find_index,
    find_shards,
    transformed_name,
    write_labels,
)

# Large enough to amortise the call of the graph, small enough for the images of a few in memory.
_BATCH = 64


_ANALYZED = proto_utils.proto_to_json(transform_pb2.SplitsConfig(analyze=[TRAIN]))


class Executor(executor.Executor):
    """Analyses the train split with TFX's executor, then transforms every shard."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Write the transform graph and the transformed examples, with their index."""
        key = standard_component_specs.TRANSFORMED_EXAMPLES_KEY
        examples = artifact_utils.get_single_instance(input_dict["examples"])
        transformed = artifact_utils.get_single_instance(output_dict[key])
        graph_uri = artifact_utils.get_single_uri(output_dict["transform_graph"])
        index = find_index(examples.uri)
        analyzed = _labels_alone(examples, index, transformed.uri) if index else examples
        super().Do(
            {**input_dict, "examples": [analyzed]},
            {name: value for name, value in output_dict.items() if name != key},
            {**exec_properties, standard_component_specs.SPLITS_CONFIG_KEY: _ANALYZED},
        )
        shards = _split_shards(examples, index)
        total = sum(count_examples(index).values()) if index else None
        writer = _TransformShard(graph_uri, examples.uri, transformed.uri, total)
        self._write(shards, writer)
        if index is None:
            index = describe_shards(transformed.uri, shards, _labels(graph_uri))
        write_index(transformed.uri, index["splits"], labels=index["labels"])
        transformed.split_names = examples.split_names
        examples_utils.set_payload_format(transformed, example_gen_pb2.FORMAT_TF_EXAMPLE)
        examples_utils.set_file_format(transformed, examples_utils.get_file_format(examples))

    def _write(self, shards: Shards, writer: _TransformShard) -> None:
        elements = [(split, name) for split, names in shards.items() for name in names]
        with self._make_beam_pipeline() as pipeline:
            _ = (
                pipeline
                | "Shards" >> beam.Create(elements, reshuffle=False)
                | "Spread" >> beam.Reshuffle()
                | "TransformShards" >> beam.ParDo(writer)
            )


def _labels_alone(
    examples: types.Artifact, index: Mapping[str, Any], transformed_uri: str
) -> types.Artifact:
    """Return examples with the labels of the train split and nothing else: all that is analyzed.

    Beam would read every image for it. `write_index` removes them.
    """
    alone = type(examples)()
    alone.copy_from(examples)
    alone.uri = os.path.join(transformed_uri, UNFINISHED, "labels")
    write_labels(alone.uri, TRAIN, index["labels"][TRAIN])
    return alone


def _split_shards(examples: types.Artifact, index: Mapping[str, Any] | None) -> Shards:
    if index:
        return {split: list(names) for split, names in index["splits"].items()}
    return find_shards(examples.uri, artifact_utils.decode_split_names(examples.split_names))


def _labels(graph_uri: str) -> list[str]:
    """Return the label of each label id."""
    vocabulary = tft.TFTransformOutput(graph_uri).vocabulary_by_name(LABEL_VOCABULARY)
    return [label.decode() for label in vocabulary]


class _TransformShard(ConcurrentDoFn):
    """Applies the transform graph to a shard."""

    def __init__(
        self, graph_uri: str, examples_uri: str, output_uri: str, total: int | None
    ) -> None:
        super().__init__(available_cpus())
        self._graph_uri = graph_uri
        self._examples_uri = examples_uri
        self._output_uri = output_uri
        self._total = total

    def setup(self) -> None:
        output = tft.TFTransformOutput(self._graph_uri)
        raw_spec = output.raw_feature_spec()
        layer = output.transform_features_layer()

        # Traced once for all shards, and without AutoGraph, which has nothing to convert here:
        # either would take seconds more.
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
        def transform(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
            features: dict[str, tf.Tensor] = layer(tf.io.parse_example(serialized, raw_spec))
            return features

        self._transform = transform.get_concrete_function()

    def work(self, shard: tuple[str, str]) -> None:
        split, name = shard
        compression = "GZIP" if name.endswith(GZIP_SUFFIX) else None
        path = os.path.join(self._examples_uri, f"Split-{split}", name)
        records = tf.data.TFRecordDataset(path, compression).batch(_BATCH).prefetch(1)
        # Called here, not mapped over the dataset: tf.data would make a copy of the graph ready for
        # every shard, half a second each.
        batches = (
            {name: values.numpy() for name, values in self._transform(batch).items()}
            for batch in records
        )
        examples = self._counted(itertools.chain.from_iterable(map(_examples, batches)))
        write_indexed_shard(self._output_uri, split, transformed_name(name), examples)

    def _counted(self, examples: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for features in examples:
            yield features
            if self._total:
                add_progress(self._output_uri, 1, total=self._total, unit="images")


def _examples(batch: Mapping[str, np.ndarray[Any, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the features of each row of a batch of scalars."""
    columns = {name: values.reshape(-1).tolist() for name, values in batch.items()}
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))
