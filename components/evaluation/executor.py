"""The executor of ImageEvaluator: chooses the split, evaluates, keeps predictions and verdict."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tensorflow as tf
from tfx import types
from tfx.components.evaluator import constants, executor
from tfx.types import artifact_utils
from tfx.types.standard_component_specs import (
    BASELINE_MODEL_KEY,
    BLESSING_KEY,
    EVAL_CONFIG_KEY,
    EXAMPLE_SPLITS_KEY,
    MODEL_KEY,
)
from tfx.utils import json_utils, path_utils, proto_utils

from components.contract.artifacts import (
    BASELINE_PROPERTY,
    FOUND_PROPERTY,
    MAJORITY_PROPERTY,
    SPLIT_PROPERTY,
    VERSION_PROPERTY,
    Artifacts,
)
from components.contract.configuration import from_json
from components.contract.example import ENCODED, FILENAME
from components.contract.lite import LITE_PROPERTY
from components.contract.splits import EVAL, TEST, TRAIN
from components.evaluation.config import EvaluationConfig
from components.evaluation.lite.measurement import measure_lite
from components.evaluation.lite.result_file import write_results
from components.evaluation.prediction_file import join_parts, read_predictions
from components.evaluation.slices import decode_text
from components.evaluation.smoke.smoke_test import SmokeTest
from components.evaluation.tfma.eval_config import make_eval_config
from components.evaluation.tfma.extractors import keep_predictions
from components.evaluation.verdict_file import make_verdict
from components.records.shard_files import list_shards, read_index

CONFIG_KEY = "config"
"""The execution property that holds the `EvaluationConfig`."""

MAX_LITE_DROP_KEY = "max_lite_drop"
"""The execution property that bounds what a small version may lose, 0 to 1."""

# Probabilities, 4 bytes each, that may be held in memory once for each slicing.
_MOST_SCORES = 10_000_000


class Executor(executor.Executor):
    """Chooses the split to evaluate on, and leaves out a baseline that does not exist."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Evaluate on `TEST` where there is one: `EVAL` has chosen the weights."""
        examples = artifact_utils.get_single_instance(input_dict["examples"])
        evaluation = artifact_utils.get_single_instance(output_dict["evaluation"])
        labels = read_index(examples.uri)["labels"]
        split = TEST if TEST in labels else EVAL
        total = sum(labels[split].values())
        majority_accuracy = max(labels[split].values()) / total
        config = require_majority_accuracy(
            from_json(EvaluationConfig, exec_properties[CONFIG_KEY]), majority_accuracy
        )
        with_auc = total * len(labels[TRAIN]) <= _MOST_SCORES
        given = _without_empty_baseline(input_dict)
        properties = {
            **exec_properties,
            EVAL_CONFIG_KEY: proto_utils.proto_to_json(make_eval_config(config, with_auc=with_auc)),
            EXAMPLE_SPLITS_KEY: json_utils.dumps([split]),
        }
        with _start_smoke_test(given, examples.uri, split, config) as smoke_test:
            with keep_predictions(evaluation.uri):
                super().Do(given, output_dict, properties)
            join_parts(evaluation.uri, **_read_labels(given, examples.uri, split))
            evaluated = read_predictions(evaluation.uri)
            broken = smoke_test.find_failure(evaluated)
        blessing = artifact_utils.get_single_instance(output_dict[BLESSING_KEY])
        # TFX has blessed it, or not, by measured values alone.
        holds = bool(blessing.get_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY))
        verdict = make_verdict(
            evaluation.uri, evaluated, config, majority_accuracy, holds=holds, broken=broken
        )
        if holds and verdict.outcome != "blessed":
            _withhold(blessing)
        lite = measure_lite(
            given[MODEL_KEY][0].uri,
            examples.uri,
            split,
            evaluated,
            max_drop=exec_properties.get(MAX_LITE_DROP_KEY, 0.0),
        )
        write_results(evaluation.uri, lite)
        kept = ",".join(result.kind for result in lite if not result.reason)
        blessing.set_string_custom_property(LITE_PROPERTY, kept)
        evaluation.set_string_custom_property(SPLIT_PROPERTY, split)
        evaluation.set_float_custom_property(MAJORITY_PROPERTY, majority_accuracy)
        for baseline in given.get(BASELINE_MODEL_KEY, []):
            version = baseline.get_string_custom_property(VERSION_PROPERTY) or ""
            evaluation.set_string_custom_property(BASELINE_PROPERTY, version)


def require_majority_accuracy(config: EvaluationConfig, accuracy: float) -> EvaluationConfig:
    """Raise the least allowed accuracy to `accuracy`, 0 to 1, if it is lower.

    That is the accuracy of always answering with the most frequent class.
    """
    return replace(config, min_accuracy=max(config.min_accuracy, accuracy))


def _withhold(blessing: types.Artifact) -> None:
    """Take back the blessing that TFX has given."""
    given = os.path.join(blessing.uri, constants.BLESSED_FILE_NAME)
    tf.io.gfile.rename(given, os.path.join(blessing.uri, constants.NOT_BLESSED_FILE_NAME))
    blessing.set_int_custom_property(
        constants.ARTIFACT_PROPERTY_BLESSED_KEY, constants.NOT_BLESSED_VALUE
    )


def _read_labels(
    given: Mapping[str, list[types.Artifact]], examples_uri: str, split: str
) -> dict[str, Any]:
    """Ask the models for the labels of their columns, which come with the answer to an image."""
    [record] = tf.data.TFRecordDataset(list_shards(examples_uri, split)).take(1)
    image = tf.io.parse_example([record], {ENCODED: tf.io.FixedLenFeature([], tf.string)})[ENCODED]
    models = {"labels": MODEL_KEY, "baseline_labels": BASELINE_MODEL_KEY}
    return {
        name: _ask_labels(given[key][0], image) if key in given else None
        for name, key in models.items()
    }


def _start_smoke_test(
    given: Mapping[str, list[types.Artifact]],
    examples_uri: str,
    split: str,
    config: EvaluationConfig,
) -> SmokeTest:
    """Have the model answer the first images of the split, in a process of its own."""
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in (FILENAME, ENCODED)}
    records = tf.data.TFRecordDataset(list_shards(examples_uri, split)).take(config.smoke_images)
    parsed = records.map(lambda record: tf.io.parse_single_example(record, features))
    images = {decode_text(image[FILENAME]): image[ENCODED] for image in parsed.as_numpy_iterator()}
    model = _find_model(given[MODEL_KEY][0])
    return SmokeTest(model, images, seconds=config.smoke_seconds)


def _find_model(artifact: types.Artifact) -> str:
    """Return the folder of the SavedModel."""
    old = path_utils.is_old_model_artifact(artifact)
    return str(path_utils.serving_model_path(artifact.uri, old))


def _ask_labels(artifact: types.Artifact, image: tf.Tensor) -> list[bytes]:
    # Signatures alone do not keep the model's variables alive.
    model = tf.saved_model.load(_find_model(artifact))
    answer = model.signatures["serving_default"](image_bytes=image)
    labels: list[bytes] = answer["labels"][0].numpy().tolist()
    return labels


def _without_empty_baseline(
    input_dict: Mapping[str, list[types.Artifact]],
) -> Artifacts:
    """Drop the baseline on a first run; TFX then ignores the change thresholds."""
    given = input_dict.get(BASELINE_MODEL_KEY, [])
    found = [b for b in given if b.get_int_custom_property(FOUND_PROPERTY)]
    others = {name: of for name, of in input_dict.items() if name != BASELINE_MODEL_KEY}
    return {**others, BASELINE_MODEL_KEY: found} if found else others
