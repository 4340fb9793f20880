"""TFMA's configuration: metrics, slices and thresholds."""

from __future__ import annotations

import json

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2

from components.contract.example import LABEL_ID
from components.contract.model_files import EXAMPLES_SIGNATURE
from components.evaluation.config import EvaluationConfig, Threshold
from components.evaluation.metrics.metric_table import AUC, METRICS
from components.evaluation.thresholds import list_thresholds


class CountedMetric(tfma.metrics.Metric):
    """Names a metric of `METRICS` for TFMA; `result_files` writes its values."""

    def __init__(self, name: str) -> None:
        """Name a metric."""
        super().__init__(lambda *args, **kwargs: [], name=name)


metric_types.register_metric(CountedMetric)


def make_eval_config(config: EvaluationConfig, *, with_auc: bool = True) -> config_pb2.EvalConfig:
    """Measure every metric on all slices; bless by the thresholds of `config`."""
    thresholds = list_thresholds(config)
    names = [name for name in METRICS if name != AUC or measures_auc(config, with_auc=with_auc)]
    metrics = [
        *(_metric(name, thresholds) for name in names),
        config_pb2.MetricConfig(class_name="ExampleCount"),
        config_pb2.MetricConfig(class_name="MultiClassConfusionMatrixPlot"),
    ]
    # TFX adds the specification of the baseline, if there is one.
    model = config_pb2.ModelSpec(
        signature_name=EXAMPLES_SIGNATURE,
        preprocessing_function_names=["transform_features"],
        label_key=LABEL_ID,
        prediction_key="probabilities",
    )
    return config_pb2.EvalConfig(
        model_specs=[model],
        slicing_specs=[_slice(name) for name in ("", *config.slices)],
        metrics_specs=[config_pb2.MetricsSpec(metrics=metrics)],
    )


def measures_auc(config: EvaluationConfig, *, with_auc: bool) -> bool:
    """Say whether to measure the AUC, which does not follow from counts."""
    return with_auc or any(threshold.metric == AUC for threshold in config.thresholds)


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
