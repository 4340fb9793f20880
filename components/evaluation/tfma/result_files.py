"""Writes TFMA's files from counts: metrics, plots, attributions, validation and configuration.

TFMA would count every example in every slice one by one, in Python. Here the counts come from
`components.evaluation.metrics.counts`; TFMA itself compares thresholds and reads the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow_model_analysis as tfma
from google.protobuf import json_format
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2, metrics_for_slice_pb2
from tensorflow_model_analysis.version import VERSION
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as writer

from components.evaluation.metrics.counts import OVERALL, SlicedCounts, SliceKey
from components.evaluation.metrics.metric_table import AUC
from components.evaluation.thresholds import SliceValues
from components.records.tfrecord import RecordWriter
from components.storage.artifact_files import make_folders, open_file

_COUNT, _PLOT = "example_count", "multi_class_confusion_matrix_plot"
# TFMA's name of a single shard.
_SHARD = "-00000-of-00001.tfrecord"


@dataclass(frozen=True)
class MeasuredModel:
    """The measurements of a model."""

    name: str
    """Empty if there is only one model, as TFMA demands."""
    path: str
    """Path of the SavedModel."""
    counts: SlicedCounts
    values: SliceValues
    """Result of `measure_values`."""


def measure_values(
    counts: SlicedCounts, areas: Mapping[SliceKey, float] | None
) -> dict[SliceKey, dict[str, float]]:
    """Return slice → metric → value."""
    values = {}
    for index, key in enumerate(counts.slices):
        of_slice = counts.select(index)
        values[key] = {**of_slice.scalars(), _COUNT: float(of_slice.examples)}
        if areas is not None:
            values[key][AUC] = areas[key]
    return values


def resolve_config(config: config_pb2.EvalConfig, *, compared: bool) -> config_pb2.EvalConfig:
    """Name the models of a configuration; without a baseline, drop the thresholds of changes."""
    # Without it TFMA rejects thresholds of changes on a first run.
    return tfma.utils.update_eval_config_with_defaults(
        config, has_baseline=compared, rubber_stamp=True
    )


def write_results(
    evaluation_uri: str, config: config_pb2.EvalConfig, models: Sequence[MeasuredModel]
) -> None:
    """Write the files that `tfma.load_eval_result` and `tfma.load_validation_result` read."""
    make_folders(evaluation_uri)
    validations = []
    with (
        RecordWriter(os.path.join(evaluation_uri, f"metrics{_SHARD}")) as metrics_file,
        RecordWriter(os.path.join(evaluation_uri, f"plots{_SHARD}")) as plots_file,
        RecordWriter(os.path.join(evaluation_uri, f"attributions{_SHARD}")) as attributions_file,
    ):
        for index, slice_key in enumerate(models[0].counts.slices):
            key = () if slice_key == OVERALL else (slice_key,)
            metrics = dict(_list_metrics(models, slice_key))
            of_slice = writer.convert_slice_metrics_to_proto((key, metrics), None)
            plots = writer.convert_slice_plots_to_proto((key, _draw(models, index)), None)
            attributions = metrics_for_slice_pb2.AttributionsForSlice(slice_key=of_slice.slice_key)
            metrics_file.write([of_slice.SerializeToString()])
            plots_file.write([plots.SerializeToString()])
            attributions_file.write([attributions.SerializeToString()])
            validations.append(metrics_validator.validate_metrics((key, metrics), config))
    _write_config(evaluation_uri, config, models)
    _write_validation(evaluation_uri, config, validations)


def _list_metrics(models: Sequence[MeasuredModel], key: SliceKey) -> Iterator[tuple[Any, float]]:
    """Yield key and value of the metrics of a slice, and of their differences to the baseline."""
    for model in models:
        for name, value in model.values[key].items():
            yield metric_types.MetricKey(name, model_name=model.name), value
    for name, value in models[0].values[key].items() if len(models) > 1 else ():
        difference = metric_types.MetricKey(name, model_name=models[0].name, is_diff=True)
        yield difference, value - models[-1].values[key][name]


def _draw(models: Sequence[MeasuredModel], index: int) -> dict[Any, Any]:
    """Return the confusion matrix of each model."""
    plots = {}
    for model in models:
        plot = metrics_for_slice_pb2.MultiClassConfusionMatrixAtThresholds()
        matrix = plot.matrices.add(threshold=0.0)
        for truth, said, examples in zip(*model.counts.confusion(index).tolist(), strict=True):
            matrix.entries.add(
                actual_class_id=truth, predicted_class_id=said, num_weighted_examples=examples
            )
        plots[metric_types.PlotKey(_PLOT, model_name=model.name)] = plot
    return plots


def _write_config(
    evaluation_uri: str, config: config_pb2.EvalConfig, models: Sequence[MeasuredModel]
) -> None:
    run = config_pb2.EvalRun(
        eval_config=config,
        version=VERSION,
        data_location="<user provided PCollection>",
        file_format="<unknown>",
        model_locations={model.name: model.path for model in models},
    )
    with open_file(os.path.join(evaluation_uri, "eval_config.json"), "w") as file:
        file.write(json_format.MessageToJson(run) + "\n")


def _write_validation(
    evaluation_uri: str, config: config_pb2.EvalConfig, validations: Iterable[Any]
) -> None:
    combine = writer.CombineValidations(config)
    total = combine.create_accumulator()
    for validation in validations:
        total = combine.add_input(total, validation)
    result = combine.extract_output(total)
    with RecordWriter(os.path.join(evaluation_uri, "validations.tfrecord")) as file:
        file.write([result.SerializeToString()])
