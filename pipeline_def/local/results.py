"""What the outputs of a step tell of the whole run, for its record."""

from __future__ import annotations

from typing import Any

from components.contract.example import INDEX_FILE
from components.contract.properties import FOLDER_PROPERTY, SPLIT_PROPERTY, VERSION_PROPERTY
from components.records.shard_files import count_examples
from components.report.metrics_file import METRICS_FILE
from pipeline_def.runs.record import Data, Output, Pushed, RunRecord, Step
from pipeline_def.steps import BASELINE_FINDER, EVALUATOR, EXAMPLE_GEN, PUSHER, REPORT


def read_results(record: RunRecord, name: str, step: Step) -> dict[str, Any]:
    """Return the fields of the record that the outputs of a step tell, done or cached."""
    if name == EXAMPLE_GEN.id:
        return {"data": _read_data(step.outputs["examples"])}
    if name == EVALUATOR.id:
        blessed = bool(step.outputs["blessing"].properties.get("blessed"))
        split = step.outputs["evaluation"].properties.get(SPLIT_PROPERTY, "")
        return {"blessed": blessed, "split": split}
    if name == REPORT.id:
        baseline = record.steps[BASELINE_FINDER.id].outputs["baseline"]
        return _read_metrics(step.outputs["metrics"], baseline)
    if name == PUSHER.id:
        return {"pushed": _read_pushed(step.outputs["pushed_model"])}
    return {}


def _read_data(examples: Output) -> Data:
    known = examples.properties
    return Data(
        folder=known.get(FOLDER_PROPERTY, ""),
        fingerprint=known.get("input_fingerprint", ""),
        span=known.get("span"),
        version=known.get("version"),
        examples=count_examples(examples.read_json(INDEX_FILE)),
    )


def _read_metrics(metrics: Output, baseline: Output) -> dict[str, Any]:
    report = metrics.read_json(METRICS_FILE)
    accuracy = report["metrics"]["accuracy"]["baseline"]
    version = baseline.properties.get(VERSION_PROPERTY)
    return {
        "metrics": {name: measured["value"] for name, measured in report["metrics"].items()},
        **report["verdict"],
        "baseline": None if accuracy is None else {"version": version, "accuracy": accuracy},
    }


def _read_pushed(pushed: Output) -> Pushed | None:
    known = pushed.properties
    if not known.get("pushed"):
        return None
    return Pushed(known["pushed_version"], known["pushed_destination"])
