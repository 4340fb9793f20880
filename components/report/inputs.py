"""Gathers the facts of a report from the artifacts of the earlier steps.

Settings are read from what the steps wrote, not from the configuration that the pipeline was made
with: the parameters of a run on Kubeflow may differ from it.
"""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from components.contract.anomalies import read_anomalies
from components.contract.artifact_files import read_json
from components.contract.example import EVAL, SUMMARY_FILE, TRAIN, count_folds
from components.contract.model_files import HISTORY_FILE, INPUT_FILE, MODEL_FILE, TRAINING_FILE
from components.contract.properties import (
    BASELINE_PROPERTY,
    CONFIG_PROPERTY,
    FOLDER_PROPERTY,
    MAJORITY_PROPERTY,
    SPLIT_PROPERTY,
    PropertiesLike,
)
from components.host.machine import read_versions, trim_memory
from components.host.progress import report_progress
from components.metrics.classification_metrics import compare_models
from components.metrics.evaluation_files import read_judgment
from components.metrics.fold_predictions import read_folds
from components.metrics.prediction_file import read_sampled
from components.metrics.predictions import Evaluated, drop_probabilities
from components.metrics.score_metrics import Unknowns
from components.records.shard_files import read_index
from components.report.facts import ReportFacts, RunHeader, TrainedPhase
from components.report.pictures import gather_pictures
from components.report.shown import Without
from components.report.suspects.copies import find_leaked
from components.report.suspects.gathering import find_suspects

_STEPS = 4


def gather_facts(
    given: Mapping[str, PropertiesLike], *, properties: Mapping[str, Any], model: str
) -> ReportFacts:
    """Read everything that the report shows."""
    evaluation, examples, run = given["evaluation"], given["examples"], given["model_run"].uri
    anomalies = given["anomalies"]
    split = evaluation.get_string_custom_property(SPLIT_PROPERTY)
    _progress(0, "reading predictions")
    evaluated = read_sampled(evaluation.uri)
    _progress(1, "computing metrics")
    comparison = compare_models(evaluated)
    training = read_json(os.path.join(run, TRAINING_FILE))
    folds = training["folds"]["count"] if training["folds"] else 0
    fits = _measure_fits(training, evaluated, split)
    # The largest part of the memory, which is free again before the images are read.
    evaluated = replace(evaluated, candidate=drop_probabilities(evaluated.candidate), baseline=None)
    trim_memory()
    _progress(2, "looking for suspects")
    unseen = read_folds(model) if model and count_folds(split) else None
    suspects = find_suspects(
        given,
        pretrained=training["config"]["model"]["weights"] not in ("auto", "none"),
        folds=dict(zip(unseen.keys, unseen.folds.tolist(), strict=True)) if unseen else {},
    )
    trim_memory()
    leaked: set[str] = set()
    if suspects:
        leaked = find_leaked(suspects.copies, split, trained=(TRAIN, EVAL) if folds else (TRAIN,))
    leaks = Without.of(evaluated, leaked) if leaked else None
    judgment = read_judgment(evaluation.uri)
    _progress(3, "reading images")
    return ReportFacts(
        header=_make_header(examples, judgment.thresholds, training, properties),
        split=split,
        verdict=judgment.verdict,
        majority_accuracy=evaluation.get_float_custom_property(MAJORITY_PROPERTY),
        selection_folds=folds,
        comparison=comparison,
        baseline_version=evaluation.get_string_custom_property(BASELINE_PROPERTY) or "",
        formats=judgment.formats,
        balance=read_index(examples.uri)["labels"],
        files=read_json(os.path.join(given["rejects"].uri, SUMMARY_FILE)),
        anomalies={
            split: [f"{anomaly.feature}: {anomaly.text}" for anomaly in of_split]
            for split, of_split in read_anomalies(anomalies.uri, anomalies.split_names).items()
        },
        **fits,
        leaks=leaks if leaks and leaks.images else None,
        **_read_training(run, training),
        **gather_pictures(
            given,
            evaluated,
            comparison.metrics,
            split=split,
            config=training["config"],
            preview_fn=properties["preview_fn"],
            model=model,
            suspects=suspects,
        ),
    )


def _read_training(run: str, training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `ReportFacts` that the training has written."""
    return {
        "history": read_json(os.path.join(run, HISTORY_FILE)),
        "phases": tuple(
            TrainedPhase(
                phase["name"],
                phase["epochs"],
                phase["best_epoch"],
                phase["diverged"],
                exported=phase["name"] == training["exported"],
            )
            for phase in training["phases"]
        ),
        "search": training["search"],
        "input_facts": read_json(os.path.join(run, INPUT_FILE)),
        "model": read_json(os.path.join(run, MODEL_FILE)),
    }


def _measure_fits(training: Mapping[str, Any], evaluated: Evaluated, split: str) -> dict[str, Any]:
    """Return the fields of `ReportFacts` about what was fitted after training."""
    held_out = split not in (TRAIN, EVAL) and not count_folds(split)
    model, scores = evaluated.candidate, evaluated.known_scores
    fields: dict[str, Any] = {}
    if model.rows is not None:
        fields["notes"] = (
            f"The areas under curves are from {len(model.rows):,} of {len(model.ids):,} images, "
            f"drawn at random. All other numbers are from all images.",
        )
    if known := training["known"]:
        # Images of a class that the model does not have are rightly unknown.
        usual = scores if scores is None else scores[model.ids >= 0]
        fields["unknowns"] = Unknowns(**known).measure(usual, held_out=held_out)
    return fields


def _make_header(
    examples: PropertiesLike,
    thresholds: Mapping[str, str],
    training: Mapping[str, Any],
    properties: Mapping[str, Any],
) -> RunHeader:
    ingest = json.loads(examples.get_string_custom_property(CONFIG_PROPERTY))
    return RunHeader(
        pipeline=properties["pipeline"],
        data=examples.get_string_custom_property(FOLDER_PROPERTY),
        fingerprint=examples.get_string_custom_property("input_fingerprint") or "",
        # Doubles on Kubeflow.
        span=int(examples.span or 0) or None,
        version=int(examples.version or 0) or None,
        code=properties["code"],
        config={"ingest": ingest, **training["config"], "evaluation": thresholds},
        versions={"python": platform.python_version(), **read_versions()},
        started=training["started"],
        training_seconds=training["seconds"],
    )


def _progress(done: int, note: str) -> None:
    report_progress(done=done, total=_STEPS, unit="parts of the report", note=note)
