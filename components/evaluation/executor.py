"""The executor of ImageEvaluator: chooses the split, evaluates, keeps what the models answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_model_analysis as tfma
from tfx import types
from tfx.components.evaluator import executor
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import json_utils, path_utils, proto_utils

from components.contract.artifacts import FOUND_PROPERTY, MAJORITY_PROPERTY, SPLIT_PROPERTY
from components.contract.configuration import from_json
from components.contract.example import ENCODED
from components.evaluation.classification_metrics import ACCURACY, AUC
from components.evaluation.config import EvaluationConfig
from components.evaluation.eval_config import make_eval_config
from components.evaluation.extractors import keep_predictions
from components.evaluation.prediction_file import join_parts
from components.records.shard_files import list_shards, read_index

CONFIG_KEY = "config"
"""The execution property that holds the `EvaluationConfig`."""

# Answers, 4 bytes each, that may be held in memory once for each slicing.
_MOST_SCORES = 10_000_000


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
        evaluation = artifact_utils.get_single_instance(output_dict["evaluation"])
        labels = read_index(examples.uri)["labels"]
        split = "test" if "test" in labels else "eval"
        total = sum(labels[split].values())
        floor = max(labels[split].values()) / total
        config = make_eval_config(from_json(EvaluationConfig, exec_properties[CONFIG_KEY]))
        raise_accuracy_floor(config, floor)
        if total * len(labels["train"]) > _MOST_SCORES:
            leave_out_auc(config)
        given = _without_empty_baseline(input_dict)
        properties = {
            **exec_properties,
            standard_component_specs.EVAL_CONFIG_KEY: proto_utils.proto_to_json(config),
            standard_component_specs.EXAMPLE_SPLITS_KEY: json_utils.dumps([split]),
        }
        with keep_predictions(evaluation.uri):
            super().Do(given, output_dict, properties)
        join_parts(evaluation.uri, **_read_labels(given, examples.uri, split))
        evaluation.set_string_custom_property(SPLIT_PROPERTY, split)
        evaluation.set_float_custom_property(MAJORITY_PROPERTY, floor)


def _read_labels(
    given: Mapping[str, list[types.Artifact]], examples_uri: str, split: str
) -> dict[str, Any]:
    """Ask the models for the labels of their columns, which come with the answer to an image."""
    [record] = tf.data.TFRecordDataset(list_shards(examples_uri, split)).take(1)
    image = tf.io.parse_example([record], {ENCODED: tf.io.FixedLenFeature([], tf.string)})[ENCODED]
    labels = {}
    for name, key in (
        ("labels", standard_component_specs.MODEL_KEY),
        ("baseline_labels", standard_component_specs.BASELINE_MODEL_KEY),
    ):
        labels[name] = _ask_labels(given[key][0], image) if key in given else None
    return labels


def _ask_labels(artifact: types.Artifact, image: tf.Tensor) -> list[bytes]:
    old = path_utils.is_old_model_artifact(artifact)
    # Signatures alone do not keep the model's variables alive.
    model = tf.saved_model.load(path_utils.serving_model_path(artifact.uri, old))
    answer = model.signatures["serving_default"](image_bytes=image)
    labels: list[bytes] = answer["labels"][0].numpy().tolist()
    return labels


def raise_accuracy_floor(config: tfma.EvalConfig, floor: float) -> None:
    """Raise the lower bound on the accuracy over all examples to `floor`, 0 to 1, if it is lower.

    Always answering with the most frequent class scores its share of the examples.
    """
    for metric in _metrics(config, ACCURACY):
        for bounds in metric.per_slice_thresholds:
            everywhere = bounds.slicing_specs == [tfma.SlicingSpec()]
            if everywhere and bounds.threshold.value_threshold.HasField("lower_bound"):
                lowest = bounds.threshold.value_threshold.lower_bound
                lowest.value = max(lowest.value, floor)


def leave_out_auc(config: tfma.EvalConfig) -> None:
    """Drop the AUC where no threshold is for it; the report has that of all examples."""
    for specs in config.metrics_specs:
        unused = [m for m in _metrics(config, AUC) if not m.per_slice_thresholds]
        kept = [metric for metric in specs.metrics if metric not in unused]
        del specs.metrics[:]
        specs.metrics.extend(kept)


def _metrics(config: tfma.EvalConfig, name: str) -> list[Any]:
    return [
        metric
        for specs in config.metrics_specs
        for metric in specs.metrics
        if json_utils.loads(metric.config or "{}").get("name") == name
    ]


def _without_empty_baseline(
    input_dict: Mapping[str, list[types.Artifact]],
) -> dict[str, list[types.Artifact]]:
    """Drop the baseline on a first run; TFX then ignores the change thresholds."""
    key = standard_component_specs.BASELINE_MODEL_KEY
    found = [b for b in input_dict[key] if b.get_int_custom_property(FOUND_PROPERTY)]
    others = {name: artifacts for name, artifacts in input_dict.items() if name != key}
    return {**others, key: found} if found else others
