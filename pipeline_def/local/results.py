"""Reads the results of a run from the outputs of its steps, for `run.json` and `summary.json`.

`summary.json` is a view of the record for people and scripts, written at the end of a run.
"""

import json
import os
import shutil
from collections.abc import Mapping
from typing import Any

from components.contract.anomalies import read_anomalies
from components.contract.artifact_files import METRICS_FILE, PAGE_FILE
from components.contract.errors import StorageError
from components.contract.example import (
    CORRECTIONS_FILE,
    DUPLICATES_FILE,
    INDEX_FILE,
    REJECTS_FILE,
    SUMMARY_FILE,
    TRAIN,
)
from components.contract.model_files import INPUT_FILE
from components.contract.properties import FOLDER_PROPERTY, SPLIT_PROPERTY, VERSION_PROPERTY
from components.records.shard_files import count_examples
from components.storage.retry import count_retries
from components.storage.saved_model import (
    SERVING_FOLDER,
    model_digest,
    read_rollback,
    whole_versions,
)
from components.validation.config import ValidationConfig
from pipeline_def.layout import Layout
from pipeline_def.runs.history import find_push
from pipeline_def.runs.record import Data, Pushed, RunRecord, Step, StepOutput
from pipeline_def.steps import (
    BASELINE_FINDER,
    EVALUATOR,
    EXAMPLE_GEN,
    EXAMPLE_VALIDATOR,
    PREDICTOR,
    PUSHER,
    REPORT,
    STATISTICS_GEN,
    TRAINER,
)


def read_results(record: RunRecord, name: str, step: Step) -> dict[str, Any]:
    """Return the fields of the record that follow from the outputs of a step."""
    if name == EXAMPLE_GEN.id:
        return {"data": _read_data(step.outputs["examples"], step.outputs["rejects"])}
    if name == EVALUATOR.id:
        blessed = bool(step.outputs["blessing"].properties.get("blessed"))
        split = step.outputs["evaluation"].properties.get(SPLIT_PROPERTY, "")
        return {"blessed": blessed, "split": split}
    if name == REPORT.id:
        baseline = record.steps[BASELINE_FINDER.id].outputs["baseline"]
        return _read_metrics(step.outputs["metrics"], baseline)
    if name == PUSHER.id:
        known = step.outputs["pushed_model"].properties
        if known.get("pushed"):
            return {"pushed": Pushed(known["pushed_version"], known["pushed_destination"])}
    return {}


def _read_data(examples: StepOutput, rejects: StepOutput) -> Data:
    known = examples.properties
    return Data(
        folder=known.get(FOLDER_PROPERTY, ""),
        fingerprint=known.get("input_fingerprint", ""),
        span=known.get("span"),
        version=known.get("version"),
        examples=count_examples(examples.read_json(INDEX_FILE)),
        corrections=rejects.read_json(SUMMARY_FILE).get("corrections", {}),
    )


def _read_metrics(metrics: StepOutput, baseline: StepOutput) -> dict[str, Any]:
    report = metrics.read_json(METRICS_FILE)
    accuracy = report["metrics"]["accuracy"]["baseline"]
    version = baseline.properties.get(VERSION_PROPERTY)
    search = report.get("search") or {}
    if search:
        chosen, text = search["chosen"], search["text"]
        search = {"trials": len(search["trials"]), "chosen": chosen, "text": text}
    return {
        "metrics": {name: measured["value"] for name, measured in report["metrics"].items()},
        **report["verdict"],
        "search": search,
        "baseline": None if accuracy is None else {"version": version, "accuracy": accuracy},
    }


Summary = dict[str, Any]
"""The content of `summary.json`; docs/reference/outputs.md explains its keys."""


def write_summary(record: RunRecord, layout: Layout, *, validation: ValidationConfig) -> Summary:
    """Write `summary.json`, and copy the report to the output folder; return the summary.

    Raises:
        StorageError: a file cannot be written.
    """
    anomalies = record.steps[EXAMPLE_VALIDATOR.id].outputs["anomalies"]
    by_split = read_anomalies(anomalies.uri, anomalies.properties["split_names"]).values()
    findings = (finding for of_split in by_split for finding in of_split)
    warnings = [str(finding) for finding in findings if not validation.stops(finding.kind)]
    summary = summarize(record, layout, warnings)
    page = os.path.join(record.steps[REPORT.id].outputs["html"].uri, PAGE_FILE)
    try:
        shutil.copyfile(page, summary["paths"]["report"])
        with open(layout.summary, "w", encoding="utf-8") as file:
            json.dump(summary, file, indent=2)
            file.write("\n")
    except OSError as error:
        raise StorageError(f"Cannot write {error.filename}: {error.strerror}.") from error
    return summary


def summarize(record: RunRecord, layout: Layout, warnings: list[str]) -> Summary:
    """Summarize a finished run, with the warnings of validation."""
    outputs = {name: step.outputs for name, step in record.steps.items()}
    ingest = outputs[EXAMPLE_GEN.id]["rejects"].read_json(SUMMARY_FILE)
    index = outputs[EXAMPLE_GEN.id]["examples"].read_json(INDEX_FILE)
    report = outputs[REPORT.id]["metrics"].read_json(METRICS_FILE)
    counted = ("rejected", "skipped", "duplicates", "label_conflicts", "in_several_splits")
    in_use = next(whole_versions(layout.pushed), None)
    rollback = read_rollback(in_use) if in_use else None
    digest = model_digest(os.path.join(outputs[TRAINER.id]["model"].uri, SERVING_FOLDER))
    is_withdrawn = bool(rollback and digest in rollback.withdrawn)
    pushed = record.pushed.destination if record.pushed and not is_withdrawn else None
    if in_use and record.blessed and model_digest(in_use) == digest:
        # A rollback may have pushed it again since the run that this one takes the push from.
        pushed = in_use
    baseline = record.baseline
    if baseline:
        pushing = find_push(layout.output, baseline["version"])
        baseline = {**baseline, "run": pushing.number if pushing else None}
    return {
        "examples": record.data.examples,
        **{name: ingest[name] for name in counted},
        "corrections": record.data.corrections,
        "warnings": warnings,
        "classes": sorted(index["labels"][TRAIN]),
        "metrics": record.metrics,
        "accuracy_interval": report["metrics"]["accuracy"]["interval"],
        "evaluated_on": record.split,
        "weights_chosen_on": report["selection_split"],
        "training": outputs[TRAINER.id]["model_run"].read_json(INPUT_FILE),
        "search": report.get("search"),
        "baseline": baseline,
        "blessed": bool(record.blessed),
        "outcome": record.outcome,
        "headline": record.headline,
        "evidence": record.evidence,
        "blessing_reason": "; ".join(record.reasons),
        "formats": {entry["kind"]: entry["reason"] for entry in report.get("formats", ())},
        "findings": report["examination"]["findings"],
        "try_first": report["examination"].get("first", ""),
        "pushed_model": pushed,
        "rolled_back_to": rollback.restored if rollback and is_withdrawn else None,
        "model_in_use": in_use,
        "store_retries": count_retries(),
        "nodes": {
            name: {"seconds": step.seconds, "cached": step.state == "cached"}
            for name, step in record.steps.items()
        },
        "paths": _list_paths(outputs, layout, record, current_stays=bool(in_use and not pushed)),
    }


def _list_paths(
    outputs: Mapping[str, Mapping[str, StepOutput]],
    layout: Layout,
    record: RunRecord,
    *,
    current_stays: bool,
) -> dict[str, str]:
    rejects, predicted = outputs[EXAMPLE_GEN.id]["rejects"].uri, outputs.get(PREDICTOR.id)
    predictions = predicted["predictions"].uri if predicted and record.blessed else None
    return {
        "report": layout.refused_report if current_stays else layout.report,
        "metrics": os.path.join(outputs[REPORT.id]["metrics"].uri, METRICS_FILE),
        "training_logs": outputs[TRAINER.id]["model_run"].uri,
        "evaluation": outputs[EVALUATOR.id]["evaluation"].uri,
        "statistics": outputs[STATISTICS_GEN.id]["statistics"].uri,
        "rejects": os.path.join(rejects, REJECTS_FILE),
        "duplicates": os.path.join(rejects, DUPLICATES_FILE),
        "corrections": os.path.join(rejects, CORRECTIONS_FILE),
        **({"predictions": predictions} if predictions else {}),
        "metadata": layout.metadata,
        "record": layout.record(record.id),
    }
