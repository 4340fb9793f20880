"""Writes TFMA's files from counts: metrics, plots, attributions, validation and configuration.

TFMA would count each example in each of its slices on its own, in Python. Here the counts are made
already, see `components.evaluation.metrics.sliced_counts`; thresholds are compared, and files
are read, by TFMA itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow_model_analysis as tfma
from google.protobuf import json_format
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2, metrics_for_slice_pb2
from tensorflow_model_analysis.version import VERSION
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as writer

from components.evaluation.metrics.classification_metrics import AUC
from components.evaluation.metrics.metric_counts import MetricCounts
from components.evaluation.metrics.sliced_counts import EVERYTHING, Place, SlicedCounts
from components.records.tfrecord import RecordWriter
from components.storage.artifact_files import make_folders, open_file

Areas: TypeAlias = Mapping[Place, float]
"""Slice → mean ROC AUC of a model."""

_Plot: TypeAlias = metrics_for_slice_pb2.MultiClassConfusionMatrixAtThresholds

_COUNT, _PLOT = "example_count", "multi_class_confusion_matrix_plot"
# As TFMA names the files of a single shard.
_SHARD = "-00000-of-00001.tfrecord"


@dataclass(frozen=True)
class Measured:
    """What is written of a model."""

    name: str
    """Empty where there is only one: that is TFMA's rule."""
    path: str
    """Of the SavedModel."""
    counts: SlicedCounts
    areas: Areas | None = None
    """Of all slices; None if the AUC is not measured."""


def resolve_config(config: config_pb2.EvalConfig, *, compared: bool) -> config_pb2.EvalConfig:
    """Name the models of a configuration; drop what compares if there is nothing to compare with.

    Args:
        config: of `make_eval_config`.
        compared: whether there is a model in use.
    """
    # On a first run TFMA calls it a rubber stamp that changes are not looked at.
    return tfma.utils.update_eval_config_with_defaults(
        config, has_baseline=compared, rubber_stamp=True
    )


def write_results(
    evaluation_uri: str, config: config_pb2.EvalConfig, models: Sequence[Measured]
) -> bool:
    """Write the files that `tfma.load_eval_result` and `tfma.load_validation_result` read.

    Args:
        evaluation_uri: folder to write to.
        config: of `resolve_config`.
        models: the candidate and, if there is one, the model in use, on the same examples.

    Returns:
        Whether every threshold of `config` holds.
    """
    make_folders(evaluation_uri)
    validations = []
    with (
        RecordWriter(os.path.join(evaluation_uri, f"metrics{_SHARD}")) as metrics_file,
        RecordWriter(os.path.join(evaluation_uri, f"plots{_SHARD}")) as plots_file,
        RecordWriter(os.path.join(evaluation_uri, f"attributions{_SHARD}")) as attributions_file,
    ):
        for index, place in enumerate(models[0].counts.places):
            key = () if place == EVERYTHING else (place,)
            metrics = dict(_list_metrics(models, index))
            of_slice = writer.convert_slice_metrics_to_proto((key, metrics), None)
            plots = writer.convert_slice_plots_to_proto((key, _draw(models, index)), None)
            attributions = metrics_for_slice_pb2.AttributionsForSlice(slice_key=of_slice.slice_key)
            metrics_file.write([of_slice.SerializeToString()])
            plots_file.write([plots.SerializeToString()])
            attributions_file.write([attributions.SerializeToString()])
            validations.append(metrics_validator.validate_metrics((key, metrics), config))
    _write_config(evaluation_uri, config, models)
    return _write_validation(evaluation_uri, config, validations)


def _list_metrics(models: Sequence[Measured], index: int) -> Iterator[tuple[Any, float]]:
    """Yield key and value of the metrics of a slice, and of the changes against the last model."""
    values = [dict(_measure(model, index)) for model in models]
    for model, of_model in zip(models, values, strict=True):
        for name, value in of_model.items():
            yield metric_types.MetricKey(name, model_name=model.name), value
    for name, value in values[0].items() if len(models) > 1 else ():
        key = metric_types.MetricKey(name, model_name=models[0].name, is_diff=True)
        yield key, value - values[-1][name]


def _measure(model: Measured, index: int) -> Iterator[tuple[str, float]]:
    counts: MetricCounts = model.counts.of_place(index)
    yield from counts.scalars().items()
    yield _COUNT, float(counts.examples)
    if model.areas is not None:
        yield AUC, model.areas[model.counts.places[index]]


def _draw(models: Sequence[Measured], index: int) -> dict[Any, _Plot]:
    """Return the confusion matrix of each model."""
    return {
        metric_types.PlotKey(_PLOT, model_name=model.name): _plot(model.counts, index)
        for model in models
    }


def _plot(counts: SlicedCounts, index: int) -> _Plot:
    cells = counts.cells_of(index)
    plot = metrics_for_slice_pb2.MultiClassConfusionMatrixAtThresholds()
    matrix = plot.matrices.add(threshold=0.0)
    for truth, predicted, examples in zip(*cells.tolist(), strict=True):
        matrix.entries.add(
            actual_class_id=truth, predicted_class_id=predicted, num_weighted_examples=examples
        )
    return plot


def _write_config(
    evaluation_uri: str, config: config_pb2.EvalConfig, models: Sequence[Measured]
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
) -> bool:
    combine = writer.CombineValidations(config)
    total = combine.create_accumulator()
    for validation in validations:
        total = combine.add_input(total, validation)
    result = combine.extract_output(total)
    with RecordWriter(os.path.join(evaluation_uri, "validations.tfrecord")) as file:
        file.write([result.SerializeToString()])
    holds: bool = result.validation_ok
    return holds
