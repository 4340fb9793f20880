"""The Beam step of Transform: one output shard per input shard, with the records in its order."""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from components.contract.example import ENCODED, FILENAME, LABEL, LABEL_ID, SHA256, TRAIN
from components.host.machine import available_cpus
from components.host.progress import add_progress
from components.images.original import keep_original
from components.records.record_index import write_indexed_shard
from components.records.record_reader import read_features, read_records
from components.records.shard_work import ConcurrentDoFn
from components.transform.config import LABEL_VOCABULARY, TransformConfig
from components.transform.earlier_images import EarlierImages, Row, list_rows

# Large enough to amortize a graph call, small enough to hold the images of several batches.
_BATCH = 64

# Features of an original that are stored beside its label id.
_KEPT = (ENCODED, FILENAME, LABEL, SHA256)

_LABEL = LABEL.encode()

# TFX's own ExampleGens compress their shards, and write no index.
_GZIP_SUFFIX = ".gz"

Batch = Mapping[str, np.ndarray[Any, Any]]
"""The features of some records, an array of scalars each."""
Examples = Iterator[dict[str, Any]]


def transformed_name(shard: str) -> str:
    """Name the uncompressed output after its input shard."""
    return shard.removesuffix(_GZIP_SUFFIX)


class TransformShard(ConcurrentDoFn):
    """Applies the transform graph to a shard, except to images that an earlier run has made."""

    def __init__(
        self,
        graph_uri: str,
        examples_uri: str,
        output_uri: str,
        total: int | None,
        config: TransformConfig,
        earlier: EarlierImages | None,
    ) -> None:
        """Write the shards of `output_uri`; `total` is the number of records, if it is known."""
        super().__init__(available_cpus())
        self._config = config
        self._graph_uri = graph_uri
        self._examples_uri = examples_uri
        self._output_uri = output_uri
        self._total = total
        self._earlier = earlier

    def setup(self) -> None:
        """Load the graph."""
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
        """Write the shard of this split and name."""
        split, name = shard
        path = os.path.join(self._examples_uri, f"Split-{split}", name)
        rows = self._list_rows(path) if self._earlier else []
        if self._earlier and rows and (shards := self._earlier.list_rows(split, name)):
            # The ids of its labels may be the same in another vocabulary.
            is_same = shards.get(self._earlier.followed.get(shard, "")) == rows
            if is_same and self._earlier.share(shard, self._output_uri):
                self._count(len(rows))
                return
            images = self._earlier.find_images(split, shards, {digest for digest, *_ in rows})
            examples = self._reuse(path, split, rows, images)
        else:
            compression = "GZIP" if name.endswith(_GZIP_SUFFIX) else None
            records = tf.data.TFRecordDataset(path, compression).batch(_BATCH).prefetch(1)
            examples = self._make(records, split)
        target = transformed_name(name)
        write_indexed_shard(self._output_uri, split, target, self._counted(examples))

    def _list_rows(self, path: str) -> list[Row]:
        """Return the rows that the shard at `path` should become."""
        kept = [name.encode() for name in self._kept_spec if name != ENCODED]
        records = list(read_features(path, kept))
        return list_rows(records, (self._ids.get(bytes(of[_LABEL]), -1) for of in records))

    def _reuse(
        self, path: str, split: str, rows: Sequence[Row], images: Mapping[bytes, memoryview]
    ) -> Examples:
        """Transform the records at `path` whose images are not known by the files' digests."""
        new = {number for number, (digest, *_) in enumerate(rows) if digest not in images}
        records = enumerate(read_records(path, verify=new))
        unknown = (bytes(record) for number, record in records if number in new)
        batches = iter(lambda: list(itertools.islice(unknown, _BATCH)), [])
        made = self._make(map(tf.constant, batches), split)
        for digest, filename, label in rows:
            if digest not in images:
                yield next(made)
                continue
            features = {ENCODED: bytes(images[digest]), LABEL_ID: label, SHA256: digest}
            yield features | ({FILENAME: filename} if FILENAME in self._kept_spec else {})

    def _make(self, batches: Iterable[tf.Tensor], split: str) -> Examples:
        """Transform batches of serialized records."""
        # Called here, not mapped over a dataset: tf.data would instantiate the graph for every
        # shard, which takes half a second.
        is_kept = self._config.storage == "originals" and split == TRAIN
        made = map(self._keep_batch if is_kept else self._transform_batch, batches)
        return itertools.chain.from_iterable(map(_examples, made))

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

    def _counted(self, examples: Iterable[dict[str, Any]]) -> Examples:
        for features in examples:
            yield features
            self._count(1)

    def _count(self, records: int) -> None:
        if self._total:
            add_progress(self._output_uri, records, total=self._total, unit="images")


def _examples(batch: Batch) -> Examples:
    """Yield the features of each row of a batch of scalars."""
    columns = {name: values.reshape(-1).tolist() for name, values in batch.items()}
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))
