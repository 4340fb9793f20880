"""TFMA's configuration: what is measured, on which slices, and what blesses a model."""

from __future__ import annotations

import tensorflow_model_analysis as tfma

from components.example import LABEL, LABEL_ID
from components.image_evaluator import ACCURACY
from pipeline_def.config import EvaluationConfig


def make_eval_config(config: EvaluationConfig) -> tfma.EvalConfig:
    """Measure accuracy, loss and confusion, overall and per class; bless by accuracy."""
    threshold = tfma.MetricThreshold(
        value_threshold=tfma.GenericValueThreshold(lower_bound={"value": config.min_accuracy}),
        change_threshold=tfma.GenericChangeThreshold(
            direction=tfma.MetricDirection.HIGHER_IS_BETTER,
            absolute={"value": -config.max_accuracy_drop},
        ),
    )
    # A plain `threshold` would hold for every class as well.
    overall = tfma.PerSliceMetricThreshold(slicing_specs=[tfma.SlicingSpec()], threshold=threshold)
    return tfma.EvalConfig(
        model_specs=[
            # TFX adds the baseline's specification itself, when there is a baseline.
            tfma.ModelSpec(
                signature_name="serving_examples",
                preprocessing_function_names=["transform_features"],
                label_key=LABEL_ID,
                prediction_key="probabilities",
            )
        ],
        slicing_specs=[tfma.SlicingSpec(), tfma.SlicingSpec(feature_keys=[LABEL])],
        metrics_specs=[
            tfma.MetricsSpec(
                metrics=[
                    tfma.MetricConfig(class_name=ACCURACY, per_slice_thresholds=[overall]),
                    tfma.MetricConfig(class_name="SparseCategoricalCrossentropy"),
                    tfma.MetricConfig(class_name="ExampleCount"),
                    tfma.MetricConfig(class_name="MultiClassConfusionMatrixPlot"),
                ]
            )
        ],
    )
