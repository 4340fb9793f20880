"""The executor of ImageTransform: TFX's analysis, then one output shard per input shard."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from components.contract.errors import DataError
from components.contract.example import ENCODED, FILENAME, LABEL, LABEL_ID, SHA256, TRAIN
from components.contract.machine import available_cpus
from components.contract.progress import add_progress
from components.images.canonical import canonicalize
from components.images.original import keep_original
from components.records.record_index import read_rows, write_indexed_shard
from components.records.shard_files import count_examples, read_index, write_index
from components.records.shard_work import ConcurrentDoFn
from components.storage.artifact_files import list_names
from components.transform.config import LABEL_VOCABULARY, TransformConfig, read_custom_config

# Large enough to amortize a graph call, small enough to hold the images of several batches.
_BATCH = 64

# Features of an original that are stored beside its label id.
_KEPT = (ENCODED, FILENAME, LABEL, SHA256)

# TFX's own ExampleGens compress their shards, and write no index.
_GZIP_SUFFIX = ".gz"

Shards = Mapping[str, Collection[str]]
"""Split → names of its files."""
Batch = Mapping[str, np.ndarray[Any, Any]]
"""The features of some records, an array of scalars each."""


def preprocessing_fn(
    inputs: dict[str, tf.Tensor], custom_config: dict[str, Any]
) -> dict[str, tf.Tensor]:
    """Turn raw features, each [batch, 1], into what trainers and the served model read.

    Args:
        inputs: the features of `components.contract.example`.
        custom_config: of the component, see `read_custom_config`.

    Returns:
        `image/encoded` string [batch], canonical; `image/class/label` int64 [batch], in vocabulary
        order; `image/filename` and `image/key/sha256` string [batch], if the examples have them.
    """
    config, ingest = read_custom_config(custom_config)
    canonical = canonicalize(tf.reshape(inputs[ENCODED], [-1]), config, ingest=ingest)
    labels = tf.reshape(inputs[LABEL], [-1])
    outputs = {
        ENCODED: canonical,
        LABEL_ID: tft.compute_and_apply_vocabulary(labels, vocab_filename=LABEL_VOCABULARY),
    }
    for name in (FILENAME, SHA256):
        if name in inputs:
            outputs[name] = tf.reshape(inputs[name], [-1])
    return outputs


class Executor(executor.Executor):
    """Analyzes the train split with TFX's executor, then transforms every shard."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Write the transform graph, and the transformed examples with their index."""
        key = standard_component_specs.TRANSFORMED_EXAMPLES_KEY
        analysis = {name: value for name, value in output_dict.items() if name != key}
        splits = proto_utils.proto_to_json(transform_pb2.SplitsConfig(analyze=["train"]))
        examples = artifact_utils.get_single_instance(input_dict["examples"])
        index = _find_index(examples.uri)
        custom = json.loads(exec_properties["custom_config"])
        if index and "ingest" in index:
            # It travels with the shards, also into other pipelines.
            custom["ingest"] = index["ingest"]
        properties = {
            **exec_properties,
            standard_component_specs.SPLITS_CONFIG_KEY: splits,
            standard_component_specs.CUSTOM_CONFIG_KEY: json.dumps(custom),
        }
        super().Do(input_dict, analysis, properties)
        transformed = artifact_utils.get_single_instance(output_dict[key])
        graph_uri = artifact_utils.get_single_uri(output_dict["transform_graph"])
        shards = index["splits"] if index else _list_shards(examples)
        total = sum(count_examples(index).values()) if index else None
        config, _ = read_custom_config(custom)
        writer = _TransformShard(graph_uri, examples.uri, transformed.uri, total, config)
        self._write(shards, writer)
        if index is None:
            labels = tft.TFTransformOutput(graph_uri).vocabulary_by_name(LABEL_VOCABULARY)
            index = describe_shards(transformed.uri, shards, [label.decode() for label in labels])
        ingest = custom.get("ingest", {})
        facts = {"groups": index["groups"]} if "groups" in index else {}
        write_index(
            transformed.uri, index["splits"], labels=index["labels"], ingest=ingest, **facts
        )
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


def _find_index(examples_uri: str) -> dict[str, Any] | None:
    """Read the index that ImageExampleGen writes; None for examples of another component."""
    try:
        return read_index(examples_uri)
    except FileNotFoundError:
        return None


def _list_shards(examples: types.Artifact) -> Shards:
    names = artifact_utils.decode_split_names(examples.split_names)
    return {split: list_names(os.path.join(examples.uri, f"Split-{split}")) for split in names}


def describe_shards(
    transformed_uri: str, shards: Shards, vocabulary: Sequence[str]
) -> dict[str, Any]:
    """Count the records of transformed shards, and the images of each label in `vocabulary`.

    Return `splits` and `labels`, as in ImageExampleGen's index.

    Raises:
        DataError: a label does not occur in the train split.
    """
    splits, labels = {}, {}
    for split, names in shards.items():
        written = [_transformed_name(name) for name in names]
        rows = read_rows(transformed_uri, split, written)
        splits[split] = {name: len(of) for name, of in zip(written, rows, strict=True)}
        ids = np.concatenate([of[:, 2] for of in rows]) if rows else np.empty(0, np.int64)
        if unknown := int((ids < 0).sum()):
            raise DataError(
                f"{unknown:,} images of split '{split}' have a label that no image of split "
                f"'train' has: remove them, or split the images differently."
            )
        counts = np.bincount(ids, minlength=len(vocabulary)).tolist()
        labels[split] = {label: n for label, n in zip(vocabulary, counts, strict=True) if n}
    return {"splits": splits, "labels": labels}


def _transformed_name(shard: str) -> str:
    """Name the uncompressed output after its input shard."""
    return shard.removesuffix(_GZIP_SUFFIX)


class _TransformShard(ConcurrentDoFn):
    """Applies the transform graph to a shard."""

    def __init__(
        self,
        graph_uri: str,
        examples_uri: str,
        output_uri: str,
        total: int | None,
        config: TransformConfig,
    ) -> None:
        super().__init__(available_cpus())
        self._config = config
        self._graph_uri = graph_uri
        self._examples_uri = examples_uri
        self._output_uri = output_uri
        self._total = total

    def setup(self) -> None:
        output = tft.TFTransformOutput(self._graph_uri)
        raw_spec = output.raw_feature_spec()
        layer = output.transform_features_layer()

        # Traced once for all shards, without AutoGraph, which would find nothing to convert.
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
        def transform(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
            features: dict[str, tf.Tensor] = layer(tf.io.parse_example(serialized, raw_spec))
            return features

        self._transform = transform.get_concrete_function()
        self._kept_spec = {name: raw_spec[name] for name in _KEPT if name in raw_spec}
        labels = output.vocabulary_by_name(LABEL_VOCABULARY)
        self._ids = {label: number for number, label in enumerate(labels)}

    def work(self, shard: tuple[str, str]) -> None:
        split, name = shard
        compression = "GZIP" if name.endswith(_GZIP_SUFFIX) else None
        path = os.path.join(self._examples_uri, f"Split-{split}", name)
        records = tf.data.TFRecordDataset(path, compression).batch(_BATCH).prefetch(1)
        # Called here, not mapped over the dataset: tf.data would instantiate the graph for every
        # shard, which takes half a second.
        is_kept = self._config.storage == "originals" and split == TRAIN
        batches = map(self._keep_batch if is_kept else self._transform_batch, records)
        examples = self._counted(itertools.chain.from_iterable(map(_examples, batches)))
        write_indexed_shard(self._output_uri, split, _transformed_name(name), examples)

    def _transform_batch(self, batch: tf.Tensor) -> Batch:
        return {name: values.numpy() for name, values in self._transform(batch).items()}

    def _keep_batch(self, batch: tf.Tensor) -> Batch:
        """Return the same features as the graph, with the original images."""
        parsed = tf.io.parse_example(batch, self._kept_spec)
        features = {name: values.numpy().reshape(-1) for name, values in parsed.items()}
        labels = features.pop(LABEL)
        # The graph maps unknown labels to -1, too.
        features[LABEL_ID] = np.array([self._ids.get(label, -1) for label in labels], np.int64)
        images = [keep_original(image, self._config) for image in features[ENCODED]]
        return {**features, ENCODED: np.array(images, object)}

    def _counted(self, examples: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for features in examples:
            yield features
            if self._total:
                add_progress(self._output_uri, 1, total=self._total, unit="images")


def _examples(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield the features of each row of a batch of scalars."""
    columns = {name: values.reshape(-1).tolist() for name, values in batch.items()}
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))
