"""ImageStatisticsGen: TFX's StatisticsGen, through which the bytes of the images do not pass.

TFDV looks at the first bytes of an image, to tell its format, and at its length. To find both, TFX
would copy a hundred kilobytes of each photograph.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_data_validation.statistics.generators import image_stats_generator
from tfx import types
from tfx.components.statistics_gen import component, executor
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.contract.artifacts import Artifacts
from components.contract.example import ENCODED, INDEX_FILE
from components.records.record_reader import read_shortened
from components.records.shard_files import list_shards
from components.storage.artifact_files import list_names
from components.validation.feature_statistics import Statistics, find_feature
from components.validation.statistics import statistics_options

# As many as the longest signature that TFDV knows, that of a PNG, has.
_SIGNATURE_BYTES = 8
# Length of the image; only between the records and the finished statistics.
_LENGTH = f"{ENCODED}/length"

# TFDV counts a batch in a few calls of NumPy; a thousand records without images are 500 KB.
_BATCH = 1000


class Executor(executor.Executor):
    """Counts the scalars of each example; examples of other components are counted as by TFX."""

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
        with self._make_beam_pipeline() as pipeline:
            for split in artifact_utils.decode_split_names(examples.split_names):
                folder = artifact_utils.get_split_uri([statistics], split)
                _ = (
                    pipeline
                    | f"Shards[{split}]" >> beam.Create(list_shards(examples.uri, split))
                    | f"Spread[{split}]" >> beam.Reshuffle()
                    | f"Read[{split}]" >> beam.FlatMap(read_scalars)
                    | f"Count[{split}]" >> tfdv.GenerateStatistics(_options())
                    | f"Lengths[{split}]" >> beam.Map(restore_lengths)
                    | f"Write[{split}]"
                    >> tfdv.WriteStatisticsToBinaryFile(
                        os.path.join(folder, executor.DEFAULT_FILE_NAME)
                    )
                )


def _options() -> tfdv.StatsOptions:
    """Recognise images, but neither times nor languages, as which TFDV tries every text.

    That is 40 % of the time for an image, and `correct_schema` takes back what it may find.
    """
    options = statistics_options()
    options.enable_semantic_domain_stats = False
    images = [image_stats_generator.ImageStatsGenerator()]
    options.generators = [stats_impl.CombinerFeatureStatsWrapperGenerator(images)]
    return options


def read_scalars(shard: str) -> Iterator[pa.RecordBatch]:
    """Yield the examples of a shard as TFX would, but with images cut to their signature.

    The length of the image is a feature of its own, for `restore_lengths`.
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
    """Return the statistics with the length of the images where it belongs."""
    restored = type(statistics)()
    restored.CopyFrom(statistics)
    features = restored.datasets[0].features
    length, image = (find_feature(restored, name) for name in (_LENGTH, ENCODED))
    if length is not None and image is not None:
        measured, said = length.num_stats, image.bytes_stats
        said.avg_num_bytes = measured.mean
        said.min_num_bytes, said.max_num_bytes = measured.min, measured.max
        said.max_num_bytes_int = int(measured.max)
    if length is not None:
        features.remove(length)
    return restored


class ImageStatisticsGen(component.StatisticsGen):
    """StatisticsGen with `statistics_options()`, which reads no more of an image than it counts.

    Example:
        >>> from components import ImageExampleGen, ImageStatisticsGen
        >>> example_gen = ImageExampleGen(folder="photos")
        >>> statistics = ImageStatisticsGen(examples=example_gen.outputs["examples"])
        >>> sorted(statistics.outputs)
        ['statistics']
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(self, *, examples: types.BaseChannel) -> None:
        """Count every split.

        Args:
            examples: of ImageExampleGen, or of any other component that writes examples.
        """
        super().__init__(examples=examples, stats_options=statistics_options())
