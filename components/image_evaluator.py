"""ImageEvaluator: TFX's Evaluator on the right split, with a floor no useful model is below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow_model_analysis as tfma
from tfx import types
from tfx.components.evaluator import component, executor
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import json_utils, proto_utils

from components.baseline import FOUND_PROPERTY
from components.shards import read_index

SPLIT_PROPERTY = "split"
FLOOR_PROPERTY = "share_of_most_frequent_class"
ACCURACY = "SparseCategoricalAccuracy"


class Executor(executor.Executor):
    """Chooses the split to evaluate on, and leaves out a baseline that does not exist."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Evaluate on `test` where there is one: early stopping has looked at `eval`."""
        examples = artifact_utils.get_single_instance(input_dict["examples"])
        labels = read_index(examples.uri)["labels"]
        split = "test" if "test" in labels else "eval"
        floor = max(labels[split].values()) / sum(labels[split].values())
        config = proto_utils.json_to_proto(
            exec_properties[standard_component_specs.EVAL_CONFIG_KEY], tfma.EvalConfig()
        )
        raise_accuracy_floor(config, floor)
        super().Do(
            _without_empty_baseline(input_dict),
            output_dict,
            {
                **exec_properties,
                standard_component_specs.EVAL_CONFIG_KEY: proto_utils.proto_to_json(config),
                standard_component_specs.EXAMPLE_SPLITS_KEY: json_utils.dumps([split]),
            },
        )
        evaluation = artifact_utils.get_single_instance(output_dict["evaluation"])
        evaluation.set_string_custom_property(SPLIT_PROPERTY, split)
        evaluation.set_float_custom_property(FLOOR_PROPERTY, floor)


def raise_accuracy_floor(config: tfma.EvalConfig, floor: float) -> None:
    """Raise every lower bound on the accuracy to `floor`, 0 to 1, where it is lower.

    Always answering with the most frequent class scores its share of the examples.
    """
    for specs in config.metrics_specs:
        for metric in specs.metrics:
            if metric.class_name == ACCURACY:
                for per_slice in metric.per_slice_thresholds:
                    bound = per_slice.threshold.value_threshold.lower_bound
                    bound.value = max(bound.value, floor)


def _without_empty_baseline(
    input_dict: Mapping[str, list[types.Artifact]],
) -> dict[str, list[types.Artifact]]:
    """Drop the baseline on a first run; TFX then ignores the change thresholds."""
    key = standard_component_specs.BASELINE_MODEL_KEY
    found = [b for b in input_dict[key] if b.get_int_custom_property(FOUND_PROPERTY)]
    others = {name: artifacts for name, artifacts in input_dict.items() if name != key}
    return {**others, key: found} if found else others


class ImageEvaluator(component.Evaluator):
    """TFX's Evaluator with a baseline that may be missing and the split chosen at run time."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
