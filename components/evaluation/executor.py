"""The executor of ImageEvaluator: chooses the split, evaluates, writes predictions and verdict.

Beam workers run the models over whole batches (`inference`); `slice_counts` counts the predictions
in each slice, once for the verdict and for TFMA's files.
"""

import collections
import contextlib
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tfx import types
from tfx.components.evaluator import constants
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import artifact_utils
from tfx.types.standard_component_specs import (
    BASELINE_MODEL_KEY,
    BLESSING_KEY,
    EVALUATION_KEY,
    EXAMPLES_KEY,
    MODEL_KEY,
)
from tfx.utils import path_utils

from components.contract.artifact_files import make_folders, open_file, read_json
from components.contract.configuration import from_json
from components.contract.example import (
    ENCODED,
    EVAL,
    FILENAME,
    TEST,
    TRAIN,
    count_folds,
    decode_text,
    name_folds,
)
from components.contract.model_files import FORMATS_PROPERTY, NETWORK_FILE
from components.contract.properties import (
    BASELINE_PROPERTY,
    FOUND_PROPERTY,
    MAJORITY_PROPERTY,
    SPLIT_PROPERTY,
    VERSION_PROPERTY,
)
from components.contract.tfx_classes import Artifacts
from components.evaluation.config import EvaluationConfig
from components.evaluation.format_measurement import measure_formats
from components.evaluation.inference import Job, predict_shards
from components.evaluation.prediction_writer import find_unseen, join_parts, replace_probabilities
from components.evaluation.slice_counts import CountedModels, measure_models, measures_auc
from components.evaluation.smoke_test import SmokeTest
from components.evaluation.tfma_files import write_results
from components.evaluation.verdict import (
    ALL_LEARNED,
    UNKNOWN_LABELS,
    MeasuredAccuracy,
    check_thresholds,
    decide,
    describe_thresholds,
    measure_accuracy,
)
from components.metrics.evaluation_files import Judgment, Verdict, write_judgment
from components.metrics.fold_predictions import FoldPredictions, read_folds, read_learned
from components.metrics.prediction_file import read_predictions
from components.metrics.slices import choose_slices
from components.records.shard_files import list_shards, read_index
from components.records.tfrecord import read_features

CONFIG_KEY = "config"
"""The execution property that holds the `EvaluationConfig`."""

MAX_DROP_KEY = "max_format_drop"
"""The execution property that bounds the accuracy drop of an export, 0 to 1."""

# Images of the smoke test, and its time limit in seconds, more if the evaluation takes longer.
_SMOKE_IMAGES = 8
_SMOKE_SECONDS = 300.0


class Executor(BaseBeamExecutor):
    """Evaluates the candidate, and the current model if there is one, on the same examples."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Evaluate on `TEST` if there is one, else on all folds or on `EVAL`."""
        examples = artifact_utils.get_single_instance(input_dict[EXAMPLES_KEY])
        evaluation = artifact_utils.get_single_instance(output_dict[EVALUATION_KEY])
        blessing = artifact_utils.get_single_instance(output_dict[BLESSING_KEY])
        index = read_index(examples.uri)
        labels, columns = index["labels"], index.get("columns", {})
        models = find_models(input_dict)
        paths = [path_utils.serving_model_path(model.uri) for model in models]
        folds = [read_folds(path) for path in paths]
        split, counts = _choose_images(labels, folds[0])
        total = counts.total()
        majority_accuracy = max(counts.values()) / total
        config = require_majority_accuracy(
            from_json(EvaluationConfig, exec_properties[CONFIG_KEY]), majority_accuracy
        )
        config = replace(config, slices=choose_slices(config.slices, columns))
        columns = {name: column for name, column in columns.items() if name in config.slices}
        smoke_failure = self._predict(
            Job(paths, evaluation.uri, total, columns), examples.uri, split=split
        )
        # Exports are compared with what the exported model itself predicts.
        formats = measure_formats(
            models[0].uri,
            examples.uri,
            split,
            lambda: read_predictions(evaluation.uri),
            max_drop=exec_properties.get(MAX_DROP_KEY, 0.0),
        )
        # The report tells of the candidate's copies between splits.
        learned = [frozenset[int](), *map(read_learned, paths[1:])]
        if any(unseen := find_unseen(examples.uri, split, folds, learned)):
            replace_probabilities(evaluation.uri, unseen)
        with_auc = measures_auc(config, scores=total * len(labels[TRAIN]))
        counted = measure_models(evaluation.uri, config, paths, with_auc=with_auc)
        picked = _find_picked(paths[0], split)
        learned_any = any(row is None for rows in unseen[1:] for row in rows.values())
        accuracy = measure_accuracy(
            *counted.right,
            guess=majority_accuracy,
            selected=picked,
            known=counted.known,
            alone=ALL_LEARNED if learned_any else UNKNOWN_LABELS,
        )
        verdict = _judge(evaluation.uri, config, counted, accuracy, smoke_failure)
        if count_folds(split):
            # The exported model was trained on these images, so only the drop is known.
            formats = [
                replace(result, accuracy=accuracy.accuracy - result.drop) for result in formats
            ]
        thresholds = describe_thresholds(config)
        write_judgment(evaluation.uri, Judgment(verdict, thresholds, tuple(formats)))
        _describe(evaluation, split, majority_accuracy, input_dict.get(BASELINE_MODEL_KEY, []))
        pushed = ",".join(result.kind for result in formats if not result.reason)
        blessing.set_string_custom_property(FORMATS_PROPERTY, pushed)
        _bless(blessing, verdict, models, exec_properties.get("current_component_id", ""))

    def _predict(self, job: Job, examples_uri: str, *, split: str) -> str:
        """Write the predictions of all models; return what the smoke test finds."""
        with _start_smoke_test(job.models[0], examples_uri, split) as smoke_test:
            with self._make_beam_pipeline() as pipeline:
                predict_shards(pipeline, list_shards(examples_uri, split), job)
            join_parts(job.evaluation_uri)
            return smoke_test.find_failure(
                lambda names: read_predictions(job.evaluation_uri, only=names)
            )


def _judge(
    evaluation_uri: str,
    config: EvaluationConfig,
    counted: CountedModels,
    accuracy: MeasuredAccuracy,
    smoke_failure: str,
) -> Verdict:
    """Compare the metrics with the thresholds, write TFMA's files, and decide."""
    check = check_thresholds(
        config,
        counted.models[0].values,
        counted.compared,
        majority_accuracy=accuracy.majority_accuracy,
        alone=accuracy.alone,
    )
    write_results(evaluation_uri, config, counted, check)
    return decide(accuracy, config, check, smoke_failure=smoke_failure)


def _describe(
    evaluation: types.Artifact,
    split: str,
    majority_accuracy: float,
    baselines: Sequence[types.Artifact],
) -> None:
    """Set the properties that the report reads."""
    evaluation.set_string_custom_property(SPLIT_PROPERTY, split)
    evaluation.set_float_custom_property(MAJORITY_PROPERTY, majority_accuracy)
    for baseline in baselines:
        version = baseline.get_string_custom_property(VERSION_PROPERTY) or ""
        evaluation.set_string_custom_property(BASELINE_PROPERTY, version)


def _choose_images(
    labels: Mapping[str, Mapping[str, int]], folds: FoldPredictions | None
) -> tuple[str, collections.Counter[str]]:
    """Return the split to evaluate on, or the name of all folds, and label → images."""
    split = TEST if TEST in labels else name_folds(folds.count) if folds else EVAL
    counts = collections.Counter[str]()
    for name in labels if count_folds(split) else [split]:
        counts.update(labels[name])
    return split, counts


def _find_picked(saved_model: str, split: str) -> str:
    """Return what the evaluated images have picked, such as the checkpoint; "" if nothing."""
    facts = {}
    with contextlib.suppress(FileNotFoundError):  # The model of another Trainer has none.
        facts = read_json(os.path.join(saved_model, NETWORK_FILE))
    picked = facts.get("picked", "the checkpoint" if split == EVAL else "")
    return "" if split == TEST else str(picked)


def require_majority_accuracy(config: EvaluationConfig, accuracy: float) -> EvaluationConfig:
    """Raise the required accuracy to `accuracy`, that of the majority class, if it is lower."""
    return replace(config, min_accuracy=max(config.min_accuracy, accuracy))


def find_models(input_dict: Mapping[str, list[types.Artifact]]) -> list[types.Artifact]:
    """Return the candidate and, unless this is a first run, the current model."""
    candidate = artifact_utils.get_single_instance(input_dict[MODEL_KEY])
    given = input_dict.get(BASELINE_MODEL_KEY, [])
    return [candidate, *(b for b in given if b.get_int_custom_property(FOUND_PROPERTY))]


def _start_smoke_test(model: str, examples_uri: str, split: str) -> SmokeTest:
    """Start predicting the first images of the split in a separate process."""
    name, encoded = FILENAME.encode(), ENCODED.encode()
    examples = itertools.chain.from_iterable(
        read_features(shard, {name, encoded}) for shard in list_shards(examples_uri, split)
    )
    first = itertools.islice(examples, _SMOKE_IMAGES)
    images = {decode_text(bytes(example[name])): bytes(example[encoded]) for example in first}
    return SmokeTest(model, images, seconds=_SMOKE_SECONDS)


def _bless(
    blessing: types.Artifact, verdict: Verdict, models: list[types.Artifact], component_id: str
) -> None:
    """Write the blessing as TFX's Evaluator does, for Pusher."""
    if component_id:
        blessing.set_string_custom_property("component_id", component_id)
    blessed = verdict.outcome == "blessed"
    name = constants.BLESSED_FILE_NAME if blessed else constants.NOT_BLESSED_FILE_NAME
    make_folders(blessing.uri)
    with open_file(os.path.join(blessing.uri, name), "w"):
        pass
    value = constants.BLESSED_VALUE if blessed else constants.NOT_BLESSED_VALUE
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, value)
    for name, model in zip(("current_model", "baseline_model"), models, strict=False):
        blessing.set_string_custom_property(name, model.uri)
        blessing.set_int_custom_property(f"{name}_id", model.id)
