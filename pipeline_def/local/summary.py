"""What a run gave, as facts for `summary.json` and for the table that the runner prints."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from components.contract.example import EVAL, INDEX_FILE, TRAIN
from components.contract.model_files import INPUT_FILE
from components.ingest.ingest_report import DUPLICATES_FILE, REJECTS_FILE, SUMMARY_FILE
from components.report.metrics_file import METRICS_FILE
from components.storage.retry import count_retries
from pipeline_def.layout import Layout
from pipeline_def.runs.record import Output, RunRecord
from pipeline_def.steps import EVALUATOR, EXAMPLE_GEN, REPORT, STATISTICS_GEN, TRAINER


@dataclass(frozen=True)
class Summary:
    """The keys of `summary.json`."""

    examples: dict[str, int]
    """Images per split."""
    rejected: int
    skipped: int
    """Hidden files and files outside label folders."""
    duplicates: int
    """Files with the same bytes as another file."""
    label_conflicts: int
    """Images that are found under more than one label."""
    in_several_splits: int
    """Images in more than one split: evaluation then sees what training has seen."""
    warnings: list[str]
    """What validation found and the configuration lets pass."""
    classes: list[str]
    metrics: dict[str, float | None]
    """On the split `evaluated_on`, null where not defined: those of `classification_metrics`."""
    accuracy_interval: list[float]
    """Ends of the 95 % confidence interval."""
    evaluated_on: str
    """The split that judged the model."""
    weights_chosen_on: str
    """The split that chose the epoch; where it also judged, the metrics are optimistic."""
    training: dict[str, Any]
    """`images_per_second`, the fraction `input_wait_fraction` of the time that training waited for
    input, the `cache` it used, and `advice` when it waited too long; else null."""
    baseline: dict[str, Any] | None
    """The model in use before: its `version` and `accuracy` on the same split."""
    blessed: bool
    outcome: str
    """blessed, undecided (good enough, but chance explains that as well) or refused."""
    headline: str
    """The verdict in a sentence."""
    blessing_reason: str
    findings: list[dict[str, str]]
    """What to look at, the most important first: `text`, `why`, `advice`, and the `section` of the
    report."""
    looked_at: list[str]
    """What was looked at, whether something was found or not."""
    pushed_model: str | None
    store_retries: dict[str, int]
    """Requests that a store was asked again, by what had gone wrong."""
    nodes: dict[str, dict[str, Any]]
    """Step → seconds, cached."""
    paths: dict[str, str]
    """Where to look further."""

    def write(self, path: str) -> None:
        """Write as JSON."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=2)
            file.write("\n")


def summarize(record: RunRecord, layout: Layout, warnings: list[str]) -> Summary:
    """Collect the facts of a finished run.

    Args:
        record: of the run.
        layout: of its output folder.
        warnings: what validation found and the configuration lets pass.
    """
    outputs = {name: step.outputs for name, step in record.steps.items()}
    ingest = outputs[EXAMPLE_GEN.id]["rejects"].read_json(SUMMARY_FILE)
    index = outputs[EXAMPLE_GEN.id]["examples"].read_json(INDEX_FILE)
    report = outputs[REPORT.id]["metrics"].read_json(METRICS_FILE)
    counted = ("rejected", "skipped", "duplicates", "label_conflicts", "in_several_splits")
    return Summary(
        examples=record.data.examples,
        **{name: ingest[name] for name in counted},
        warnings=warnings,
        classes=sorted(index["labels"][TRAIN]),
        metrics=record.metrics,
        accuracy_interval=report["metrics"]["accuracy"]["interval"],
        evaluated_on=record.split,
        weights_chosen_on=EVAL,
        training=outputs[TRAINER.id]["model_run"].read_json(INPUT_FILE),
        baseline=record.baseline,
        blessed=bool(record.blessed),
        outcome=record.outcome,
        headline=record.headline,
        blessing_reason="; ".join(record.reasons),
        findings=report["examination"]["findings"],
        looked_at=report["examination"]["looked_at"],
        pushed_model=record.pushed.destination if record.pushed else None,
        store_retries=count_retries(),
        nodes={
            name: {"seconds": step.seconds, "cached": step.state == "cached"}
            for name, step in record.steps.items()
        },
        paths=_list_paths(outputs, layout, record.id),
    )


def _list_paths(
    outputs: Mapping[str, Mapping[str, Output]], layout: Layout, run_id: str
) -> dict[str, str]:
    rejects = outputs[EXAMPLE_GEN.id]["rejects"].uri
    return {
        "report": layout.report,
        "metrics": os.path.join(outputs[REPORT.id]["metrics"].uri, METRICS_FILE),
        "training_logs": outputs[TRAINER.id]["model_run"].uri,
        "evaluation": outputs[EVALUATOR.id]["evaluation"].uri,
        "statistics": outputs[STATISTICS_GEN.id]["statistics"].uri,
        "rejects": os.path.join(rejects, REJECTS_FILE),
        "duplicates": os.path.join(rejects, DUPLICATES_FILE),
        "metadata": layout.metadata,
        "record": layout.record(run_id),
    }
