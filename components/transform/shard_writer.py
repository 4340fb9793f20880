"""One output shard per input shard: of an earlier output if that is alike, else by a Beam step."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from components.contract.artifact_files import link, make_folders
from components.contract.errors import DataError
from components.contract.example import FILENAME, decode_text
from components.contract.printable import quote_path
from components.host.machine import available_cpus
from components.host.progress import add_progress
from components.records.record_index import index_path, write_indexed_shard
from components.records.shard_files import find_earlier, is_untouched, read_index
from components.records.shard_work import ConcurrentDoFn
from components.records.tfrecord import without_tuning

# Large enough to amortize a graph call, small enough to hold the images of several batches.
_BATCH = 64


class TransformShard(ConcurrentDoFn):
    """Applies the transform graph to each shard."""

    def __init__(self, graph_uri: str, examples_uri: str, output_uri: str, total: int) -> None:
        """Write the shards of `output_uri`; `total` is the number of records."""
        super().__init__(available_cpus())
        self._graph_uri = graph_uri
        self._examples_uri = examples_uri
        self._output_uri = output_uri
        self._total = total

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

    def work(self, shard: tuple[str, str]) -> None:
        """Write the shard of this split and name."""
        split, name = shard
        batches = tf.data.TFRecordDataset(_shard(self._examples_uri, split, name))
        batches = without_tuning(batches.batch(_BATCH).prefetch(1))
        write_indexed_shard(self._output_uri, split, name, self._transform_examples(batches))

    def _transform_examples(self, batches: Iterable[tf.Tensor]) -> Iterator[dict[str, Any]]:
        """Yield the features of each transformed record, and report progress."""
        for batch in batches:
            # Called here, not mapped over the dataset: tf.data would instantiate the graph for
            # every shard, which takes half a second.
            try:
                features = self._transform(batch)
            except tf.errors.InvalidArgumentError as error:
                raise DataError(
                    f"TensorFlow cannot decode {self._find_broken(batch)}: remove it, or ingest "
                    f"with ingest.check pixels, which rejects such images."
                ) from error
            columns = {
                name: values.numpy().reshape(-1).tolist() for name, values in features.items()
            }
            for row in zip(*columns.values(), strict=True):
                yield dict(zip(columns, row, strict=True))
                add_progress(self._output_uri, 1, total=self._total, unit="images")

    def _find_broken(self, batch: tf.Tensor) -> str:
        """Return the name of the first image of a batch that cannot be transformed."""
        for record in batch:
            try:
                self._transform(record[tf.newaxis])
            except tf.errors.InvalidArgumentError:
                features = tf.train.Example.FromString(record.numpy()).features.feature
                names = features[FILENAME].bytes_list.value
                return quote_path(decode_text(names[0])) if names else "an image without a name"
        return "an image"


def take_over(
    places: Sequence[tuple[str, str]], examples_uri: str, transformed_uri: str, made_by: str
) -> list[tuple[str, str]]:
    """Share shards of the newest output that was made alike; return the places of the others.

    A place is a split and a shard's name. Ingest shares its unchanged shards with its earlier
    output: they are the same file on disk.
    """
    earlier = find_earlier(transformed_uri, "made_by", made_by)
    known = dict(_list_intact(earlier)) if earlier else {}
    identities = {place: _identify(_shard(examples_uri, *place)) for place in places}
    unchanged = {place: known[file] for place, file in identities.items() if file in known}
    for place, before in unchanged.items():
        for path in (_shard, index_path):
            new = path(transformed_uri, *place)
            make_folders(os.path.dirname(new))
            link(path(earlier, *before), new)
    return [place for place in places if place not in unchanged]


def _list_intact(uri: str) -> Iterator[tuple[tuple[int, ...], tuple[str, str]]]:
    """Yield the file that each shard was made of, unless anything was written since the index."""
    index = read_index(uri)
    source = os.path.join(uri, index["made_from"])
    for split, names in index["splits"].items():
        for name in names:
            made_of = _shard(source, split, name)
            if is_untouched(uri, (made_of, _shard(uri, split, name), index_path(uri, split, name))):
                yield _identify(made_of), (split, name)


def _identify(path: str) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _shard(uri: str, split: str, name: str) -> str:
    return os.path.join(uri, f"Split-{split}", name)
