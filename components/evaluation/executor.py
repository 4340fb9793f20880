"""The executor of ImageEvaluator: chooses the split, evaluates, writes predictions and verdict.

Beam workers run the models over whole batches (`inference`). This module reads the predictions in
batches, keeps a few numbers of each image, and counts them in each slice for TFMA's files.
"""

import collections
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
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

from components.contract.artifact_files import make_folders, open_file
from components.contract.artifacts import Artifacts
from components.contract.configuration import from_json
from components.contract.example import (
    ENCODED,
    EVAL,
    FILENAME,
    TEST,
    TRAIN,
    count_folds,
    name_folds,
)
from components.contract.model_files import FORMATS_PROPERTY
from components.contract.properties import (
    BASELINE_PROPERTY,
    FOUND_PROPERTY,
    MAJORITY_PROPERTY,
    SPLIT_PROPERTY,
    VERSION_PROPERTY,
)
from components.evaluation.config import EvaluationConfig
from components.evaluation.fold_predictions import FoldPredictions, find_unseen, read_folds
from components.evaluation.format_measurement import measure_formats
from components.evaluation.inference import Job, predict_shards
from components.evaluation.metrics.metric_table import AUC
from components.evaluation.metrics.predictions import (
    OVERALL,
    Ints,
    Predictions,
    PredictionStats,
    SliceKey,
    find_known,
    find_rows,
)
from components.evaluation.prediction_file import (
    join_parts,
    read_prediction_batches,
    read_predictions,
    replace_probabilities,
)
from components.evaluation.slices import choose_slices, decode_text, make_readable
from components.evaluation.smoke.smoke_test import SmokeTest
from components.evaluation.tfma_files import (
    MeasuredModel,
    make_eval_config,
    measure_model,
    write_results,
)
from components.evaluation.thresholds import SliceValues, check_thresholds, describe_thresholds
from components.evaluation.verdict import (
    Verdict,
    decide,
    measure_accuracy,
    write_format_results,
    write_thresholds,
    write_verdict,
)
from components.records.record_reader import read_features
from components.records.shard_files import list_shards, read_index

CONFIG_KEY = "config"
"""The execution property that holds the `EvaluationConfig`."""

MAX_DROP_KEY = "max_format_drop"
"""The execution property that bounds the accuracy drop of an export, 0 to 1."""

# Images of the smoke test, and the seconds from the start of the evaluation to its end.
_SMOKE_IMAGES = 8
_SMOKE_SECONDS = 300.0
# Probabilities, 4 bytes each, that may be held in memory for the AUC of all slices.
_MOST_SCORES = 10_000_000


class Executor(BaseBeamExecutor):
    """Evaluates the candidate, and the model in use if there is one, on the same examples."""

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
        paths = [_path(model) for model in models]
        folds = [read_folds(path) for path in paths]
        split, counts = _choose_images(labels, folds[0])
        total = counts.total()
        majority_accuracy = max(counts.values()) / total
        config = require_majority_accuracy(
            from_json(EvaluationConfig, exec_properties[CONFIG_KEY]), majority_accuracy
        )
        config = replace(config, slices=choose_slices(config.slices, columns))
        columns = {name: of for name, of in columns.items() if name in config.slices}
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
        if any(unseen := find_unseen(examples.uri, split, folds)):
            replace_probabilities(evaluation.uri, unseen)
        stats, slices = _read_stats(evaluation.uri, config)
        with_auc = measures_auc(config, scores=total * len(labels[TRAIN]))
        known = find_known(model.truth for model in stats)
        values, compared = _write_results(
            evaluation.uri, config, stats, slices, known, paths=paths, with_auc=with_auc
        )
        right = (model.right for model in stats)
        measured = measure_accuracy(
            *right, guess=majority_accuracy, selected=split == EVAL, known=known
        )
        check = check_thresholds(
            config,
            values,
            compared,
            majority_accuracy=majority_accuracy,
            alone=measured.alone,
        )
        verdict = decide(measured, config, check, smoke_failure=smoke_failure)
        write_verdict(evaluation.uri, verdict)
        write_thresholds(evaluation.uri, describe_thresholds(config))
        evaluation.set_string_custom_property(SPLIT_PROPERTY, split)
        evaluation.set_float_custom_property(MAJORITY_PROPERTY, majority_accuracy)
        for baseline in input_dict.get(BASELINE_MODEL_KEY, []):
            version = baseline.get_string_custom_property(VERSION_PROPERTY) or ""
            evaluation.set_string_custom_property(BASELINE_PROPERTY, version)
        if count_folds(split):
            # The exported model was trained on these images, so only the drop is known.
            formats = [replace(of, accuracy=measured.accuracy - of.drop) for of in formats]
        write_format_results(evaluation.uri, formats)
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


def _choose_images(
    labels: Mapping[str, Mapping[str, int]], folds: FoldPredictions | None
) -> tuple[str, collections.Counter[str]]:
    """Return the split to evaluate on, or the name of all folds, and label → images."""
    split = TEST if TEST in labels else name_folds(folds.count) if folds else EVAL
    counts = collections.Counter[str]()
    for one in labels if count_folds(split) else [split]:
        counts.update(labels[one])
    return split, counts


def require_majority_accuracy(config: EvaluationConfig, accuracy: float) -> EvaluationConfig:
    """Raise the required accuracy to `accuracy`, that of the majority class, if it is lower."""
    return replace(config, min_accuracy=max(config.min_accuracy, accuracy))


def measures_auc(config: EvaluationConfig, *, scores: int) -> bool:
    """Say whether to measure the AUC, for which all `scores` are held in memory."""
    return scores <= _MOST_SCORES or any(of.metric == AUC for of in config.thresholds)


def find_models(input_dict: Mapping[str, list[types.Artifact]]) -> list[types.Artifact]:
    """Return the candidate and, unless this is a first run, the model in use."""
    candidate = artifact_utils.get_single_instance(input_dict[MODEL_KEY])
    given = input_dict.get(BASELINE_MODEL_KEY, [])
    return [candidate, *(b for b in given if b.get_int_custom_property(FOUND_PROPERTY))]


def _path(model: types.Artifact) -> str:
    path: str = path_utils.serving_model_path(model.uri)
    return path


def _start_smoke_test(model: str, examples_uri: str, split: str) -> SmokeTest:
    """Start predicting the first images of the split in a separate process."""
    name, encoded = FILENAME.encode(), ENCODED.encode()
    examples = itertools.chain.from_iterable(
        read_features(shard, {name, encoded}) for shard in list_shards(examples_uri, split)
    )
    first = itertools.islice(examples, _SMOKE_IMAGES)
    images = {decode_text(bytes(one[name])): bytes(one[encoded]) for one in first}
    return SmokeTest(model, images, seconds=_SMOKE_SECONDS)


def _read_stats(
    evaluation_uri: str, config: EvaluationConfig
) -> tuple[list[PredictionStats], dict[SliceKey, Sequence[int]]]:
    """Return statistics of the predictions of each model, and the rows of each slice.

    The predictions are read in batches, so that memory does not grow with examples × classes.
    """
    stats: list[list[PredictionStats]] = []
    slices: dict[str, list[str]] = {name: [] for name in config.slices}
    for batch in read_prediction_batches(evaluation_uri):
        stats.append([model.stats for model in (batch.candidate, batch.baseline) if model])
        for name, values in slices.items():
            # Millions of images have a few values.
            values += map(sys.intern, make_readable(batch.slices[name]))
    models = [PredictionStats.concatenate(parts) for parts in zip(*stats, strict=True)]
    return models, {OVERALL: range(len(models[0].truth)), **find_rows(slices)}


def _write_results(
    evaluation_uri: str,
    config: EvaluationConfig,
    stats: list[PredictionStats],
    slices: Mapping[SliceKey, Sequence[int]],
    known: Ints,
    *,
    paths: list[str],
    with_auc: bool,
) -> tuple[SliceValues, tuple[SliceValues, SliceValues] | None]:
    """Write TFMA's files.

    Returns:
        The metrics of the candidate; and those of both models on the rows `known`, whose labels
        both know, or None without any.
    """
    eval_config = make_eval_config(config, with_auc=with_auc, compared=len(paths) > 1)
    predictions: list[Predictions | None] = [None, None]
    if with_auc:
        evaluated = read_predictions(evaluation_uri)
        predictions = [evaluated.candidate, evaluated.baseline]
    given = list(zip(eval_config.model_specs, paths, stats, predictions, strict=False))

    def measure(rows: Mapping[SliceKey, Sequence[int]]) -> list[MeasuredModel]:
        return [
            measure_model(spec, path, of, rows, predicted) for spec, path, of, predicted in given
        ]

    models = on_known = measure(slices)
    if len(known) < len(slices[OVERALL]):
        shared = {key: np.intersect1d(rows, known).tolist() for key, rows in slices.items()}
        on_known = measure({key: rows for key, rows in shared.items() if rows})
    pair = (on_known[0].values, on_known[-1].values)
    compared = pair if len(models) > 1 and len(known) else None
    write_results(evaluation_uri, eval_config, models, compared)
    return models[0].values, compared


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
    keys = (
        (
            constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY,
            constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY,
        ),
        (
            constants.ARTIFACT_PROPERTY_BASELINE_MODEL_URI_KEY,
            constants.ARTIFACT_PROPERTY_BASELINE_MODEL_ID_KEY,
        ),
    )
    for (uri, number), model in zip(keys, models, strict=False):
        blessing.set_string_custom_property(uri, model.uri)
        blessing.set_int_custom_property(number, model.id)
