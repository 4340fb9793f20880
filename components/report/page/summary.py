"""The summary: verdict, model, key metrics and findings."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from components.contract.model_files import RATE
from components.contract.printable import describe_bytes
from components.images.thumbnails import Thumbnail
from components.metrics.classification_metrics import ModelMetrics
from components.metrics.proof import SIGNIFICANT
from components.report.facts import ReportFacts
from components.report.findings.examination import examine
from components.report.page.formatting import count, percent, shorten
from components.report.page.metrics import judge

# Pictures of the strip: one line on a desktop screen.
_STRIP = 12
_LONGEST_LABEL = 40
_START = {"none": "random weights", "imagenet": "ImageNet weights"}


def describe_summary(facts: ReportFacts) -> dict[str, Any]:
    """Describe the model and its accuracy, and examine the run."""
    comparison, metrics = facts.comparison, facts.metrics
    words, kind = judge(comparison.changes.get("accuracy"))
    accuracy = metrics.scalars["accuracy"]
    return {
        "model": _describe_model(facts),
        "significant": facts.verdict.evidence in (SIGNIFICANT, ""),
        "words": " ".join(_tell(facts)),
        "accuracy": accuracy,
        "macro_f1": metrics.scalars.get("macro_f1", math.nan),
        "interval": comparison.intervals.get("accuracy"),
        "worst": _find_worst(metrics),
        "change": comparison.changes.get("accuracy"),
        "difference": comparison.differences.get("accuracy", math.nan),
        "judgment": words,
        "kind": kind,
        "strip": list(_choose_strip(facts)),
        "examination": examine(facts),
    }


def _tell(facts: ReportFacts) -> Iterator[str]:
    """Sum the result up in sentences for readers without statistics."""
    confusion, labels = facts.metrics.confusion, facts.metrics.labels
    accuracy, images = facts.metrics.scalars["accuracy"], int(confusion.sum())
    if not images:
        return
    kept_out = f"Of {count(images, 'image')} kept out of training, the model labels"
    if facts.folds:
        kept_out = f"Of {count(images, 'image')}, models that had not seen them label"
    yield f"{kept_out} {round(accuracy * images):,} correctly: {percent(accuracy)}."
    if interval := facts.comparison.intervals.get("accuracy"):
        ends = f"{percent(interval.low)} to {percent(interval.high)}"
        yield f"On new images of the same kind, expect {ends}."
    most = shorten(labels[int(confusion.sum(axis=1).argmax())], _LONGEST_LABEL)
    yield f"Always answering “{most}” would be right for {percent(facts.majority_accuracy)}."
    for pair in facts.comparison.confused[:1]:
        label, predicted = (shorten(p, _LONGEST_LABEL) for p in (pair.label, pair.predicted))
        taken = f"“{label}” taken for “{predicted}”"
        yield f"The most frequent mistake is {taken}, {count(pair.examples, 'time')}."
    if relabeled := facts.files.get("corrections", {}).get("relabeled"):
        yield f"Corrections have changed {count(relabeled, 'label')}."


def _describe_model(facts: ReportFacts) -> Mapping[str, str]:
    model, size = facts.header.config["model"], facts.find_option("transform.size")
    return {
        "Architecture": model["build_fn"] or model["name"],
        "Input": f"{size} × {size} pixels",
        "Parameters": f"{facts.model['parameters']:,}",
        "Started from": _START.get(model["weights"], model["weights"]),
        "Size on disk": describe_bytes(facts.model["bytes"]),
        "Training speed": f"{facts.input_facts[RATE]:,.0f} images/s",
    }


def _find_worst(metrics: ModelMetrics) -> dict[str, Any] | None:
    """Return the class with the lowest F1; None if all are perfect, or there is none."""
    if not np.isfinite(metrics.f1).any() or np.nanmin(metrics.f1) == 1:
        return None
    row = int(np.nanargmin(metrics.f1))
    others = metrics.confusion[row].copy()
    others[row] = 0
    predicted = metrics.labels[int(others.argmax())] if others.any() else ""
    return {
        "label": metrics.labels[row],
        "f1": float(metrics.f1[row]),
        "interval": metrics.f1_interval(row),
        "predicted": predicted,
    }


def _choose_strip(facts: ReportFacts) -> Iterator[tuple[str, Thumbnail]]:
    """Choose samples of as many classes as there is room for; several of each if there are few."""
    shown = [sample for sample in facts.samples if sample.seen][:_STRIP]
    each = _STRIP // max(1, len(shown))
    for sample in shown:
        for picture in sample.seen[:each]:
            yield sample.label, picture
