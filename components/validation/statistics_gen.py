"""ImageStatisticsGen: TFX's StatisticsGen without copying the image bytes.

TFDV needs the first bytes of an image, for its format, and its length. TFX would copy a hundred
kilobytes of each photograph to find both.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_data_validation.statistics.generators import image_stats_generator
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.components.statistics_gen import component, executor
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils
from tfx.utils import io_utils
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.contract.artifact_files import list_names
from components.contract.example import ENCODED, FILENAME, INDEX_FILE, SHA256
from components.contract.properties import EXAMPLES_KEY_PROPERTY
from components.contract.tfx_classes import Artifacts
from components.records.shard_files import count_examples, list_shards, read_index
from components.records.tfrecord import read_shortened
from components.validation.tfdv_files import Statistics, find_feature

# Length of a PNG signature, the longest that TFDV knows.
_SIGNATURE_BYTES = 8
# Temporary feature: length of the image.
_LENGTH = f"{ENCODED}/length"

# As many examples take less than two seconds and 50 MB in one process.
_FEW = 20_000

# TFDV counts a batch in a few NumPy calls. A thousand records without images take 500 KB.
_BATCH = 1000


def statistics_options() -> tfdv.StatsOptions:
    """Declare the encoded image as an image, so that TFDV counts image formats.

    For a text feature TFDV finds the most frequent values, which holds every image in memory:
    4.1 GB for 6,400 photographs. Image formats come from the first bytes of each image.

    File names and digests are declared as images, too, because TFDV has no other way to skip
    counting values. With a hundred values or fewer, TFX's own SchemaGen would infer a closed
    domain, and each new image would be an anomaly.
    """
    schema = schema_pb2.Schema()
    for name in (ENCODED, FILENAME, SHA256):
        schema.feature.add(name=name, type=schema_pb2.BYTES).image_domain.SetInParent()
    return tfdv.StatsOptions(schema=schema, enable_semantic_domain_stats=True)


class Executor(executor.Executor):
    """Counts our own examples without their images, and other examples as TFX does."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Write the statistics of every split."""
        examples = artifact_utils.get_single_instance(input_dict["examples"])
        if INDEX_FILE not in list_names(examples.uri):
            super().Do(input_dict, output_dict, exec_properties)
            return
        statistics = artifact_utils.get_single_instance(output_dict["statistics"])
        statistics.split_names, statistics.span = examples.split_names, examples.span
        if key := examples.get_string_custom_property(EXAMPLES_KEY_PROPERTY):
            statistics.set_string_custom_property(EXAMPLES_KEY_PROPERTY, key)
        files = {
            split: os.path.join(
                artifact_utils.get_split_uri([statistics], split), executor.DEFAULT_FILE_NAME
            )
            for split in artifact_utils.decode_split_names(examples.split_names)
        }
        if sum(count_examples(read_index(examples.uri)).values()) <= _FEW:
            for split, file in files.items():
                counted = _count_here(list_shards(examples.uri, split))
                io_utils.write_bytes_file(file, counted.SerializeToString(deterministic=True))
            return
        with self._make_beam_pipeline() as pipeline:
            for split, file in files.items():
                _ = (
                    pipeline
                    | f"Shards[{split}]" >> beam.Create(list_shards(examples.uri, split))
                    | f"Spread[{split}]" >> beam.Reshuffle()
                    | f"Read[{split}]" >> beam.FlatMap(read_scalars)
                    | f"Count[{split}]" >> tfdv.GenerateStatistics(_options())
                    | f"Lengths[{split}]" >> beam.Map(restore_lengths)
                    | f"Write[{split}]" >> tfdv.WriteStatisticsToBinaryFile(file)
                )


def _count_here(shards: Iterable[str]) -> Statistics:
    """Count the examples of a split without Beam, which takes two seconds to start."""
    batches = [batch for shard in shards for batch in read_scalars(shard)]
    [batch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return restore_lengths(stats_impl.generate_statistics_in_memory(batch, _options()))


def _options() -> tfdv.StatsOptions:
    """Detect images only: TFDV also tries to parse every text as a time or language.

    That takes 40 % of the time per image, and `correct_schema` discards the result.
    """
    options = statistics_options()
    options.enable_semantic_domain_stats = False
    images = [image_stats_generator.ImageStatsGenerator()]
    options.generators = [stats_impl.CombinerFeatureStatsWrapperGenerator(images)]
    return options


def read_scalars(shard: str) -> Iterator[pa.RecordBatch]:
    """Yield the examples of a shard as TFX does, with images cut to their signature.

    A separate feature has the length of each image, for `restore_lengths`.
    """
    decoder = ExamplesToRecordBatchDecoder()
    records = read_shortened(shard, ENCODED, _SIGNATURE_BYTES)
    while batch := list(islice(records, _BATCH)):
        examples, lengths = zip(*batch, strict=True)
        decoded = decoder.DecodeBatch(list(examples))
        ends = pa.array(np.arange(len(batch) + 1, dtype=np.int64))
        column = pa.LargeListArray.from_arrays(ends, pa.array(lengths, pa.int64()))
        names = [*decoded.schema.names, _LENGTH]
        yield pa.RecordBatch.from_arrays([*decoded.columns, column], names)


def restore_lengths(statistics: Statistics) -> Statistics:
    """Move the statistics of the image lengths to the encoded image, and sort the features.

    TFDV leaves them in an order that depends on which worker was ready first.
    """
    restored = type(statistics)()
    restored.CopyFrom(statistics)
    features = restored.datasets[0].features
    length, image = (find_feature(restored, name) for name in (_LENGTH, ENCODED))
    if length is not None and image is not None:
        lengths, encoded = length.num_stats, image.bytes_stats
        encoded.avg_num_bytes = lengths.mean
        encoded.min_num_bytes, encoded.max_num_bytes = lengths.min, lengths.max
        encoded.max_num_bytes_int = int(lengths.max)
    if length is not None:
        features.remove(length)
    features.sort(key=lambda feature: list(feature.path.step))
    return restored


class ImageStatisticsGen(component.StatisticsGen):
    """StatisticsGen with `statistics_options()` that reads only the header of each image.

    Example:
        >>> from components import ImageExampleGen, ImageStatisticsGen
        >>> example_gen = ImageExampleGen(folder="photos")
        >>> statistics = ImageStatisticsGen(examples=example_gen.outputs["examples"])
        >>> sorted(statistics.outputs)
        ['statistics']
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(self, *, examples: types.BaseChannel) -> None:
        """Compute the statistics of every split.

        Args:
            examples: output of ImageExampleGen or any other component that writes examples.
        """
        super().__init__(examples=examples, stats_options=statistics_options())
