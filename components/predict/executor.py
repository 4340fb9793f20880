"""The executor of ImagePredictor: Beam writes a table for each part of the folder."""

from __future__ import annotations

import collections
import json
import os
from collections.abc import Iterator
from typing import Any, get_args

import apache_beam as beam
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils
from tfx.utils import path_utils

from components.contract.artifact_files import (
    list_names,
    make_folders,
    open_file,
    read_part,
    remove,
    write_parts,
)
from components.contract.configuration import from_json
from components.contract.tfx_classes import Artifacts
from components.images.options import FileOptions
from components.predict.files import (
    PredictConfig,
    count_files,
    decode_source,
    divide,
    encode_source,
    find_sources,
)
from components.predict.flow import Status, StatusCounts, predict
from components.predict.model import RankingModel
from components.predict.table import write_table

SUMMARY_FILE = "summary.json"
PREDICTED_PROPERTY = "predicted"
"""Property of the predictions: 1, or 0 if the model was not blessed and nothing was predicted."""

SHARD_FILES = 5_000
"""Files per shard of predictions, which Beam's workers write in parallel."""

# File of the parts of the folder, removed when all are predicted.
_PARTS = ".parts"


class PredictShard(beam.DoFn):
    """Writes the table of a shard and yields its number of files by status.

    Images never leave their worker, which loads the model once.
    """

    def __init__(
        self,
        model: str,
        predictions: str,
        config: PredictConfig,
        options: FileOptions,
        *,
        count: int,
    ) -> None:
        """Use the SavedModel in the folder `model`; write to the folder `predictions`.

        Its `count` parts are in a file there, as Beam moves only their numbers.
        """
        self._folder, self._predictions, self._count = model, predictions, count
        self._config, self._options = config, options

    def setup(self) -> None:
        """Load the model."""
        self._model = RankingModel(self._folder, top=self._config.top)

    def process(self, index: int) -> Iterator[collections.Counter[str]]:
        """Write the table of one shard atomically, because Beam may retry the shard."""
        source = decode_source(read_part(os.path.join(self._predictions, _PARTS), index))
        tally = StatusCounts(count_files([source]))
        name = f"predictions-{index:05d}-of-{self._count:05d}.parquet"
        outcomes = tally.count(predict([source], self._model.predict, self._options))
        path = os.path.join(self._predictions, name)
        for _ in write_table(path, outcomes, top=self._config.top):
            pass
        yield tally.by_status


class Executor(base_beam_executor.BaseBeamExecutor):
    """Predicts every file of a folder with a blessed model."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Write the tables and `summary.json`, or nothing if the model is not blessed."""
        self._log_startup(input_dict, output_dict, exec_properties)
        predictions = artifact_utils.get_single_instance(output_dict["predictions"])
        blessing = input_dict.get("model_blessing")
        blessed = not blessing or bool(blessing[0].get_int_custom_property("blessed"))
        predictions.set_int_custom_property(PREDICTED_PROPERTY, int(blessed))
        if not blessed:
            return
        config = from_json(PredictConfig, exec_properties["config"])
        options = from_json(FileOptions, exec_properties["options"])
        sources = find_sources([exec_properties["folder"]])
        parts = [part for source in sources for part in divide(source, SHARD_FILES)]
        # An earlier attempt may have had different shards.
        for name in list_names(predictions.uri):
            remove(os.path.join(predictions.uri, name))
        make_folders(predictions.uri)
        model = artifact_utils.get_single_instance(input_dict["model"])
        folder = path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))
        plan = os.path.join(predictions.uri, _PARTS)
        write_parts(plan, map(encode_source, parts))
        total, count = count_files(parts), len(parts)
        predict_shard = PredictShard(folder, predictions.uri, config, options, count=count)
        self._run(count, total, predict_shard, predictions.uri)
        remove(plan)

    def _run(self, count: int, total: int, predict_shard: PredictShard, predictions: str) -> None:
        with self._make_beam_pipeline() as pipeline:
            _ = (
                pipeline
                | "Shards" >> beam.Create(range(count), reshuffle=False)
                | "Spread" >> beam.Reshuffle()
                | "PredictShard" >> beam.ParDo(predict_shard)
                | "Count" >> beam.CombineGlobally(lambda counts: sum(counts, collections.Counter()))
                | "Summarize" >> beam.Map(_write_summary, predictions, total)
            )


def _write_summary(counts: collections.Counter[str], predictions: str, total: int) -> None:
    if counts.total() != total:
        raise RuntimeError(f"{total:,} files, but {counts.total():,} outcomes")
    facts = {"files": total, **{status: counts[status] for status in get_args(Status)}}
    with open_file(os.path.join(predictions, SUMMARY_FILE), "w") as file:
        file.write(json.dumps(facts, indent=1) + "\n")
