"""What a run gave, as facts for `summary.json` and for the table that the runner prints."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import tensorflow_model_analysis as tfma
from tfx import types

from components.baseline import VERSION_PROPERTY
from components.image_evaluator import ACCURACY, FLOOR_PROPERTY, SPLIT_PROPERTY
from components.report import DUPLICATES_FILE, REJECTS_FILE, SUMMARY_FILE
from components.shards import count_examples, read_index
from components.ui_artifacts import PAGE_FILE
from pipeline_def.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local_run import NodeRun
from pipeline_def.trainer import INPUT_FILE

_LOSS = "SparseCategoricalCrossentropy"


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
    classes: list[str]
    metrics: dict[str, float]
    """accuracy and loss on the split `evaluated_on`."""
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
    evaluation = nodes["Evaluator"].outputs["evaluation"]
    metrics = _read_metrics(evaluation.uri)
    candidate = metrics.get("candidate") or metrics[""]
    baseline = metrics.get("baseline")
    version = (
        nodes["BaselineFinder"].outputs["baseline"].get_string_custom_property(VERSION_PROPERTY)
    )
    blessed = bool(nodes["Evaluator"].outputs["blessing"].get_int_custom_property("blessed"))
    return Summary(
        examples=count_examples(index),
        rejected=ingest["rejected"],
        skipped=ingest["skipped"],
        duplicates=ingest["duplicates"],
        label_conflicts=ingest["label_conflicts"],
        in_several_splits=ingest["in_several_splits"],
        classes=sorted(index["labels"]["train"]),
        metrics={"accuracy": candidate[ACCURACY], "loss": candidate[_LOSS]},
        evaluated_on=evaluation.get_string_custom_property(SPLIT_PROPERTY),
        training=_read_json(nodes["Trainer"].outputs["model_run"].uri, INPUT_FILE),
        baseline={"version": version, "accuracy": baseline[ACCURACY]} if baseline else None,
        blessed=blessed,
        blessing_reason=_explain(evaluation, candidate, baseline, config),
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


def _read_metrics(evaluation_uri: str) -> dict[str, dict[str, float]]:
    """Return the metrics over all examples: model name ("" for the only one) → metric → value."""
    found: dict[str, dict[str, float]] = {}
    for of_slice in tfma.load_metrics(evaluation_uri):
        if of_slice.slice_key.single_slice_keys:
            continue
        for item in of_slice.metric_keys_and_values:
            if item.value.WhichOneof("type") == "double_value" and not item.key.is_diff:
                values = found.setdefault(item.key.model_name, {})
                values[item.key.name.title().replace("_", "")] = item.value.double_value.value
    return found


def _explain(
    evaluation: types.Artifact,
    candidate: Mapping[str, float],
    baseline: Mapping[str, float] | None,
    config: Config,
) -> str:
    """Say which threshold decided, and by how much; the decision itself is TFMA's."""
    accuracy = candidate[ACCURACY]
    floor = evaluation.get_float_custom_property(FLOOR_PROPERTY)
    bound = max(floor, config.evaluation.min_accuracy)
    name = "min_accuracy" if bound > floor else "the share of the most frequent class"
    drop = config.evaluation.max_accuracy_drop
    result = tfma.load_validation_result(evaluation.uri)
    failures = [f for v in result.metric_validations_per_slice for f in v.failures]
    reasons = [
        f"accuracy {accuracy:.3f} is {baseline[ACCURACY] - accuracy:.3f} below the model in use, "
        f"more than {drop:g}"
        if failure.metric_key.is_diff and baseline
        else f"accuracy {accuracy:.3f} is below {bound:.3f}, {name}"
        for failure in failures
    ]
    if reasons:
        return "; ".join(sorted(set(reasons)))
    passed = f"accuracy {accuracy:.3f} reaches {bound:.3f}, {name}"
    if not baseline:
        return f"{passed}; no model in use to compare with"
    return f"{passed}; the model in use has {baseline[ACCURACY]:.3f}"


def _pushed_model(pushed: types.Artifact) -> str | None:
    if not pushed.get_int_custom_property("pushed"):
        return None
    return str(pushed.get_string_custom_property("pushed_destination"))


def _paths(nodes: Mapping[str, NodeRun], rejects_uri: str, layout: Layout) -> dict[str, str]:
    return {
        "report": os.path.join(nodes["ImageReport"].outputs["html"].uri, PAGE_FILE),
        "training_logs": nodes["Trainer"].outputs["model_run"].uri,
        "evaluation": nodes["Evaluator"].outputs["evaluation"].uri,
        "statistics": nodes["StatisticsGen"].outputs["statistics"].uri,
        "rejects": os.path.join(rejects_uri, REJECTS_FILE),
        "duplicates": os.path.join(rejects_uri, DUPLICATES_FILE),
        "metadata": layout.metadata,
    }
