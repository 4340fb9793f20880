"""The border to TensorFlow Model Analysis: its configuration and its files.

TFMA would count every example in every slice one by one, in Python. Here the counts come from
`components.evaluation.metrics`; TFMA itself compares thresholds and reads the files.
"""

import json
import math
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

from components.contract.artifact_files import make_folders, open_file
from components.contract.example import LABEL_ID
from components.contract.model_files import EXAMPLES_SIGNATURE
from components.evaluation.config import EvaluationConfig, Threshold
from components.evaluation.metrics.curves import mean_auc
from components.evaluation.metrics.metric_table import AUC, METRICS
from components.evaluation.metrics.predictions import (
    OVERALL,
    Counts,
    Ints,
    Predictions,
    PredictionStats,
    SliceKey,
    count_confusion,
)
from components.evaluation.thresholds import SliceValues, list_thresholds
from components.records.tfrecord import RecordWriter

_COUNT, _PLOT = "example_count", "multi_class_confusion_matrix_plot"
# TFMA's name of a single shard.
_SHARD = "-00000-of-00001.tfrecord"


class CountedMetric(tfma.metrics.Metric):
    """Names a metric of `METRICS` for TFMA; `write_results` writes its values."""

    def __init__(self, name: str) -> None:
        """Name a metric."""
        super().__init__(lambda *args, **kwargs: [], name=name)


metric_types.register_metric(CountedMetric)


@dataclass(frozen=True)
class MeasuredModel:
    """The measurements of a model."""

    name: str
    """Empty if there is only one model, as TFMA demands."""
    path: str
    """Path of the SavedModel."""
    values: SliceValues
    confusion: Mapping[SliceKey, Ints]
    """Slice → result of `count_confusion`."""


def measure_model(
    spec: config_pb2.ModelSpec,
    path: str,
    stats: PredictionStats,
    slices: Mapping[SliceKey, Sequence[int]],
    predictions: Predictions | None,
) -> MeasuredModel:
    """Measure a model on every slice, given as rows; the AUC only if there are `predictions`."""
    values, confusion = {}, {}
    for key, rows in slices.items():
        of_slice = stats.take(rows)
        values[key] = {**Counts.of(of_slice).scalars(), _COUNT: float(len(rows))}
        if predictions:
            values[key][AUC] = mean_auc(predictions.ids[rows], predictions.probabilities[rows])
        confusion[key] = count_confusion(of_slice)
    return MeasuredModel(spec.name, path, values, confusion)


def make_eval_config(
    config: EvaluationConfig, *, with_auc: bool = True, compared: bool = True
) -> config_pb2.EvalConfig:
    """Measure every metric on all slices; bless by the thresholds of `config`.

    Without a baseline to compare with, thresholds of changes are dropped: TFMA rejects them.
    """
    thresholds = list_thresholds(config)
    metrics = [
        *(_metric(name, thresholds) for name in METRICS if name != AUC or with_auc),
        config_pb2.MetricConfig(class_name="ExampleCount"),
        config_pb2.MetricConfig(class_name="MultiClassConfusionMatrixPlot"),
    ]
    # TFMA adds the specification of the baseline.
    model = config_pb2.ModelSpec(
        signature_name=EXAMPLES_SIGNATURE,
        preprocessing_function_names=["transform_features"],
        label_key=LABEL_ID,
        prediction_key="probabilities",
    )
    wanted = config_pb2.EvalConfig(
        model_specs=[model],
        slicing_specs=[_slice(name) for name in ("", *config.slices)],
        metrics_specs=[config_pb2.MetricsSpec(metrics=metrics)],
    )
    return tfma.utils.update_eval_config_with_defaults(
        wanted, has_baseline=compared, rubber_stamp=True
    )


def _metric(name: str, thresholds: list[Threshold]) -> config_pb2.MetricConfig:
    return config_pb2.MetricConfig(
        class_name=CountedMetric.__name__,
        module=CountedMetric.__module__,
        config=json.dumps({"name": name}),
        # A plain `threshold` would apply to every slice as well.
        per_slice_thresholds=[_per_slice(t) for t in thresholds if t.metric == name],
    )


def _per_slice(threshold: Threshold) -> config_pb2.PerSliceMetricThreshold:
    bounds = config_pb2.MetricThreshold()
    if threshold.at_least is not None:
        bounds.value_threshold.lower_bound.value = threshold.at_least
    if threshold.at_most is not None:
        bounds.value_threshold.upper_bound.value = threshold.at_most
    if threshold.max_worsening is not None:
        lower = METRICS[threshold.metric].lower_is_better
        directions = config_pb2.MetricDirection
        change = bounds.change_threshold
        change.direction = directions.LOWER_IS_BETTER if lower else directions.HIGHER_IS_BETTER
        change.absolute.value = threshold.max_worsening if lower else -threshold.max_worsening
    return config_pb2.PerSliceMetricThreshold(
        slicing_specs=[_slice(threshold.slice)], threshold=bounds
    )


def _slice(name: str) -> config_pb2.SlicingSpec:
    slicing, has_value, value = name.partition("=")
    if has_value:
        return config_pb2.SlicingSpec(feature_values={slicing: value})
    return config_pb2.SlicingSpec(feature_keys=[slicing] if slicing else [])


def write_results(
    evaluation_uri: str,
    config: config_pb2.EvalConfig,
    models: Sequence[MeasuredModel],
    compared: tuple[SliceValues, SliceValues] | None,
) -> None:
    """Write the files that `tfma.load_eval_result` and `tfma.load_validation_result` read.

    The differences of the models are those of `compared`, as in `check_thresholds`.
    """
    make_folders(evaluation_uri)
    validations = []
    with (
        RecordWriter(os.path.join(evaluation_uri, f"metrics{_SHARD}")) as metrics_file,
        RecordWriter(os.path.join(evaluation_uri, f"plots{_SHARD}")) as plots_file,
        RecordWriter(os.path.join(evaluation_uri, f"attributions{_SHARD}")) as attributions_file,
    ):
        for slice_key in sorted(models[0].values):
            key = () if slice_key == OVERALL else (slice_key,)
            metrics = dict(_list_metrics(models, slice_key, compared))
            of_slice = writer.convert_slice_metrics_to_proto((key, metrics), None)
            plots = writer.convert_slice_plots_to_proto((key, _draw(models, slice_key)), None)
            attributions = metrics_for_slice_pb2.AttributionsForSlice(slice_key=of_slice.slice_key)
            metrics_file.write([of_slice.SerializeToString()])
            plots_file.write([plots.SerializeToString()])
            attributions_file.write([attributions.SerializeToString()])
            validations.append(metrics_validator.validate_metrics((key, metrics), config))
    _write_config(evaluation_uri, config, models)
    _write_validation(evaluation_uri, config, validations)


def _list_metrics(
    models: Sequence[MeasuredModel],
    key: SliceKey,
    compared: tuple[SliceValues, SliceValues] | None,
) -> Iterator[tuple[Any, float]]:
    """Yield key and value of the metrics of a slice, and of their differences to the baseline."""
    for model in models:
        for name, value in model.values[key].items():
            yield metric_types.MetricKey(name, model_name=model.name), value
    ours, theirs = (model.get(key, {}) for model in compared or ({}, {}))
    for name in models[0].values[key] if len(models) > 1 else ():
        difference = metric_types.MetricKey(name, model_name=models[0].name, is_diff=True)
        yield difference, ours.get(name, math.nan) - theirs.get(name, math.nan)


def _draw(models: Sequence[MeasuredModel], key: SliceKey) -> dict[Any, Any]:
    """Return the confusion matrix of each model."""
    plots = {}
    for model in models:
        plot = metrics_for_slice_pb2.MultiClassConfusionMatrixAtThresholds()
        matrix = plot.matrices.add(threshold=0.0)
        for truth, said, examples in zip(*model.confusion[key].tolist(), strict=True):
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
