"""The border to TensorFlow Model Analysis: its configuration and its files.

TFMA would count every example in every slice one by one, in Python. Here the counts come from
`components.metrics`, and the compared thresholds from `thresholds`; TFMA reads the files.
"""

import json
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow_model_analysis as tfma
from google.protobuf import json_format
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2, metrics_for_slice_pb2, validation_result_pb2
from tensorflow_model_analysis.version import VERSION
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as writer

from components.contract.artifact_files import make_folders, open_file
from components.contract.example import LABEL_ID
from components.contract.model_files import EXAMPLES_SIGNATURE
from components.evaluation.config import EvaluationConfig, Threshold
from components.evaluation.slice_counts import CountedModel, CountedModels, SliceValues
from components.evaluation.verdict import MissedThreshold, ThresholdCheck, list_thresholds
from components.metrics.metric_table import AUC, METRICS
from components.metrics.predictions import OVERALL, SliceKey
from components.records.tfrecord import RecordWriter

_PLOT = "multi_class_confusion_matrix_plot"
# TFMA's name of a single shard.
_SHARD = "-00000-of-00001.tfrecord"


def make_eval_config(
    config: EvaluationConfig, *, with_auc: bool = True, compared: bool = True
) -> config_pb2.EvalConfig:
    """Return TFMA's configuration: every metric on all slices, and the thresholds of `config`.

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
        # No class of TFMA's: `write_results` writes the values under this name.
        class_name=name,
        config=json.dumps({"name": name}),
        # A plain `threshold` would apply to every slice as well.
        per_slice_thresholds=[
            config_pb2.PerSliceMetricThreshold(
                slicing_specs=[_slice(threshold.slice)], threshold=_bound(threshold)
            )
            for threshold in thresholds
            if threshold.metric == name
        ],
    )


def _bound(threshold: Threshold) -> config_pb2.MetricThreshold:
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
    return bounds


def _slice(name: str) -> config_pb2.SlicingSpec:
    slicing, has_value, value = name.partition("=")
    if has_value:
        return config_pb2.SlicingSpec(feature_values={slicing: value})
    return config_pb2.SlicingSpec(feature_keys=[slicing] if slicing else [])


def write_results(
    evaluation_uri: str, config: EvaluationConfig, counted: CountedModels, check: ThresholdCheck
) -> None:
    """Write the files that `tfma.load_eval_result` and `tfma.load_validation_result` read.

    They hold the metrics of all models on every slice, and the result of `check_thresholds`.
    """
    make_folders(evaluation_uri)
    with_auc = AUC in counted.models[0].values[OVERALL]
    tfma_config = make_eval_config(config, with_auc=with_auc, compared=len(counted.models) > 1)
    names = [spec.name for spec in tfma_config.model_specs]
    named = list(zip(names, counted.models, strict=True))
    with (
        RecordWriter(os.path.join(evaluation_uri, f"metrics{_SHARD}")) as metrics_file,
        RecordWriter(os.path.join(evaluation_uri, f"plots{_SHARD}")) as plots_file,
    ):
        for slice_key in sorted(counted.models[0].values):
            key = () if slice_key == OVERALL else (slice_key,)
            metrics = dict(_list_metrics(named, slice_key, counted.compared))
            of_slice = writer.convert_slice_metrics_to_proto((key, metrics), None)
            plots = writer.convert_slice_plots_to_proto((key, _draw(named, slice_key)), None)
            metrics_file.write([of_slice.SerializeToString()])
            plots_file.write([plots.SerializeToString()])
    run = config_pb2.EvalRun(
        eval_config=tfma_config,
        version=VERSION,
        data_location="<user provided PCollection>",
        file_format="<unknown>",
        model_locations={name: model.path for name, model in named},
    )
    with open_file(os.path.join(evaluation_uri, "eval_config.json"), "w") as file:
        file.write(json_format.MessageToJson(run) + "\n")
    _write_validation(evaluation_uri, names[0], check)


_NamedModels = Sequence[tuple[str, CountedModel]]
"""Name of each model, empty if there is only one, as TFMA demands."""


def _list_metrics(
    models: _NamedModels, key: SliceKey, compared: tuple[SliceValues, SliceValues] | None
) -> Iterator[tuple[Any, float]]:
    """Yield key and value of the metrics of a slice, and of their differences to the baseline."""
    for model_name, measured in models:
        for name, value in measured.values[key].items():
            yield metric_types.MetricKey(name, model_name=model_name), value
    ours, theirs = (model.get(key, {}) for model in compared or ({}, {}))
    first_name, first = models[0]
    for name in first.values[key] if len(models) > 1 else ():
        difference = metric_types.MetricKey(name, model_name=first_name, is_diff=True)
        yield difference, ours.get(name, math.nan) - theirs.get(name, math.nan)


def _draw(models: _NamedModels, key: SliceKey) -> dict[Any, Any]:
    """Return the confusion matrix of each model."""
    plots = {}
    for name, model in models:
        plot = metrics_for_slice_pb2.MultiClassConfusionMatrixAtThresholds()
        matrix = plot.matrices.add(threshold=0.0)
        for truth, said, examples in zip(*model.confusion[key].tolist(), strict=True):
            matrix.entries.add(
                actual_class_id=truth, predicted_class_id=said, num_weighted_examples=examples
            )
        plots[metric_types.PlotKey(_PLOT, model_name=name)] = plot
    return plots


def _write_validation(evaluation_uri: str, model_name: str, check: ThresholdCheck) -> None:
    result = validation_result_pb2.ValidationResult(validation_ok=check.holds)
    by_slice: dict[SliceKey, list[MissedThreshold]] = {}
    for missed in check.missed:
        by_slice.setdefault(missed.key, []).append(missed)
    for key, misses in sorted(by_slice.items()):
        of_slice = result.metric_validations_per_slice.add()
        for slicing, value in () if key == OVERALL else (key,):
            of_slice.slice_key.single_slice_keys.add(column=slicing, bytes_value=value.encode())
        for missed in misses:
            failure = of_slice.failures.add(
                metric_threshold=_bound(missed.threshold), message=missed.text
            )
            failure.metric_key.name = missed.threshold.metric
            failure.metric_key.model_name = model_name
            failure.metric_key.is_diff = missed.is_change
            failure.metric_value.double_value.value = missed.value
    for threshold, slices in check.matches:
        if slices:
            result.validation_details.slicing_details.add(
                slicing_spec=_slice(threshold.slice), num_matching_slices=slices
            )
        else:
            result.missing_slices.append(_slice(threshold.slice))
    with RecordWriter(os.path.join(evaluation_uri, "validations.tfrecord")) as file:
        file.write([result.SerializeToString()])
