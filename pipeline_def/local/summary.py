"""What a run gave, as facts for `summary.json` and for the table that the runner prints."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tfx import types

from components.contract.artifacts import VERSION_PROPERTY
from components.contract.model_run import INPUT_FILE
from components.ingest.ingest_report import DUPLICATES_FILE, REJECTS_FILE, SUMMARY_FILE
from components.records.shard_files import count_examples, read_index
from components.report.metrics_file import METRICS_FILE
from components.validation.findings import describe_warnings
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.runner import NodeRun


@dataclass(frozen=True)
class Summary:
    """The keys of `summary.json`."""

    examples: dict[str, int]
    """Images per split."""
    rejected: int
    skipped: int
    """Hidden files and files outside label folders."""
    duplicates: int
    """Files whose very bytes another file has, too."""
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
    """Holds the true accuracy with 95 % confidence: its ends."""
    evaluated_on: str
    training: dict[str, Any]
    """`images_per_second`, the share `input_wait_share` of its time that it waited for input, the
    `cache` it used, and `advice` when it waited too long; else null."""
    baseline: dict[str, Any] | None
    """The model in use before: its `version` and `accuracy` on the same split."""
    blessed: bool
    blessing_reason: str
    pushed_model: str | None
    nodes: dict[str, dict[str, Any]]
    """Node → seconds, cached."""
    paths: dict[str, str]
    """Where to look further."""

    def write(self, path: str) -> None:
        """Write as JSON."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=2)
            file.write("\n")


def summarize(nodes: Mapping[str, NodeRun], config: Config) -> Summary:
    """Collect the facts of a finished run from the artifacts its nodes wrote."""
    index = read_index(nodes["ImageExampleGen"].outputs["examples"].uri)
    rejects_uri = nodes["ImageExampleGen"].outputs["rejects"].uri
    ingest = _read_json(rejects_uri, SUMMARY_FILE)
    report = _read_json(nodes["ImageReport"].outputs["metrics"].uri, METRICS_FILE)
    accuracy = report["metrics"]["accuracy"]
    return Summary(
        examples=count_examples(index),
        rejected=ingest["rejected"],
        skipped=ingest["skipped"],
        duplicates=ingest["duplicates"],
        label_conflicts=ingest["label_conflicts"],
        in_several_splits=ingest["in_several_splits"],
        warnings=describe_warnings(
            nodes["ExampleValidator"].outputs["anomalies"], config.validation
        ),
        classes=sorted(index["labels"]["train"]),
        metrics={name: measured["value"] for name, measured in report["metrics"].items()},
        accuracy_interval=accuracy["interval"],
        evaluated_on=report["split"],
        training=_read_json(nodes["Trainer"].outputs["model_run"].uri, INPUT_FILE),
        baseline=_baseline(nodes["BaselineFinder"].outputs["baseline"], accuracy["baseline"]),
        blessed=report["blessed"],
        blessing_reason="; ".join(report["reasons"]),
        pushed_model=_pushed_model(nodes["Pusher"].outputs["pushed_model"]),
        nodes={
            name: {"seconds": round(node.seconds, 3), "cached": node.cached}
            for name, node in nodes.items()
        },
        paths=_paths(nodes, rejects_uri, Layout(config.output)),
    )


def _read_json(folder: str, name: str) -> dict[str, Any]:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        facts: dict[str, Any] = json.load(file)
    return facts


def _baseline(baseline: types.Artifact, accuracy: float | None) -> dict[str, Any] | None:
    if accuracy is None:
        return None
    version = baseline.get_string_custom_property(VERSION_PROPERTY)
    return {"version": version, "accuracy": accuracy}


def _pushed_model(pushed: types.Artifact) -> str | None:
    if not pushed.get_int_custom_property("pushed"):
        return None
    return str(pushed.get_string_custom_property("pushed_destination"))


def _paths(nodes: Mapping[str, NodeRun], rejects_uri: str, layout: Layout) -> dict[str, str]:
    return {
        "report": layout.report,
        "metrics": os.path.join(nodes["ImageReport"].outputs["metrics"].uri, METRICS_FILE),
        "training_logs": nodes["Trainer"].outputs["model_run"].uri,
        "evaluation": nodes["Evaluator"].outputs["evaluation"].uri,
        "statistics": nodes["StatisticsGen"].outputs["statistics"].uri,
        "rejects": os.path.join(rejects_uri, REJECTS_FILE),
        "duplicates": os.path.join(rejects_uri, DUPLICATES_FILE),
        "metadata": layout.metadata,
    }
