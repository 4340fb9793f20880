"""Facts of reports: a typical one, and an odd one."""

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np

from components.contract.confidence import Interval
from components.metrics.evaluation_files import Verdict
from components.metrics.score_metrics import Unknowns
from components.report.facts import ReportFacts, RunHeader, TrainedPhase
from components.report.shown import ClassSample
from tests.evaluation.metrics_sample import make_comparison
from tests.report.samples.picture_sample import (
    digit,
    make_images,
    make_mistakes,
    make_reject,
    make_suspects,
    sample_class,
)

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NASTY = (
    "<script>alert(1)</script>",
    "\"quoted\" & 'so' $x_1$",
    "قطة سوداء",
    "family 👨‍👩‍👧 🐈",
    "a-label-that-never-ends-" * 9,
    "\u202eoverride\nand\x00control",
    "byte \udcff",
    "absent",
)
_CONFIG: dict[str, dict[str, Any]] = {
    "ingest": {"splits": None},
    "transform": {"size": 32},
    "augmentation": {"policy": "none", "flip": False},
    "model": {"name": "cnn", "weights": "none", "build_fn": None, "dropout": 0.2},
    "transfer": {"unfreeze": "top"},
    "training": {
        "epochs": 30,
        "metric": "loss",
        "keep": "best",
        "balance": "none",
        "calibrate": False,
        "learning_rate": 0.01,
        "label_smoothing": 0.0,
        "precision": "float32",
    },
}
_HEADER = RunHeader(
    pipeline="digits",
    data="gs://a-bucket/with/a/rather/long/path/to/the/images/of/digits",
    fingerprint="3f9a0c51d8e24b77",
    span=3,
    version=1,
    code="b1946ac92492d2347c6235b4d2611184",
    config=_CONFIG,
    versions={"tensorflow": "2.16.2", "tfx": "1.16.0"},
    started="2026-11-20T08:15:00Z",
    training_seconds=5025.4,
)
_FILES = {
    "files": 1823,
    "examples": 1797,
    "rejected": 19,
    "skipped": 7,
    "rejected_by_category": {"truncated": 12, "not an image": 7},
    "skipped_by_reason": {"hidden": 7},
    "duplicates": 8,
    "label_conflicts": 1,
    "in_several_splits": 1,
}


def make_history(epochs: int) -> dict[str, list[float]]:
    fall = np.exp(-np.arange(epochs) / 5)
    random = np.random.default_rng(3)
    return {
        "loss": list(0.1 + 2 * fall),
        "accuracy": list(0.97 - 0.8 * fall),
        "val_loss": list(0.25 + 1.9 * fall + 0.01 * np.arange(epochs)),
        "val_accuracy": list(0.93 - 0.75 * fall),
        "learning_rate": list(1e-3 * (1 + np.cos(np.pi * np.arange(1, epochs + 1) / epochs)) / 2),
        "images_per_second": list(1500 + 100 * random.random(epochs)),
        "input_wait_fraction": list(0.05 + 0.15 * random.random(epochs)),
    }


@functools.cache
def small() -> ReportFacts:
    """Ten classes, a baseline, and content in every section."""
    comparison = make_comparison(DIGITS, each=40, accuracy=0.92)
    counts = {label: 150 - 11 * place for place, label in enumerate(DIGITS)}
    return ReportFacts(
        header=_HEADER,
        split="test",
        verdict=Verdict(
            "blessed",
            "Accuracy 92.6 % (89.7 to 94.8), baseline 11 %.",
            [
                "accuracy 0.926 is above the required minimum (0.9)",
                "the accuracy of the current model is 0.876",
            ],
            "Significant at 95 %.",
        ),
        majority_accuracy=0.14,
        balance={
            "train": counts,
            "eval": {label: n // 5 for label, n in counts.items()},
            "test": {label: n // 4 for label, n in counts.items()},
        },
        files=_FILES,
        anomalies={
            "train": (),
            "eval": ("image/class/text: 2 values are not in the domain: x, y",),
        },
        history=make_history(30),
        comparison=comparison,
        phases=(TrainedPhase("train", 30, 19),),
        input_facts={"images_per_second": 1548, "input_wait_fraction": 0.14, "advice": None},
        model={"parameters": 131_402, "bytes": 720_000},
        unknowns=Unknowns(0.05, 240, -3.21, 0.055, Interval(0.03, 0.09)),
        samples=tuple(sample_class(label, place) for place, label in enumerate(DIGITS)),
        rejects=tuple(map(make_reject, range(14))),
        mistakes=make_mistakes(DIGITS, 30),
        images=make_images(comparison.metrics, each=3),
        suspects=make_suspects(DIGITS, points=300),
        baseline_version="17",
        notes=("Samples are from the train split.",),
    )


@functools.cache
def nasty() -> ReportFacts:
    """Odd labels, a class missing in the split, no baseline, and little else."""
    comparison = make_comparison(NASTY, each=9, accuracy=0.7, compared=False, absent=1)
    measures = comparison.metrics
    scalars = {**measures.scalars, "auc": math.nan, "top_5_accuracy": math.nan}
    balance = {"train": dict.fromkeys(NASTY, 9), "test": dict.fromkeys(NASTY[:-1], 9)}
    return replace(
        small(),
        header=replace(
            _HEADER, pipeline=NASTY[0], data=f"/data/{NASTY[1]}", fingerprint="", span=None
        ),
        verdict=Verdict(
            "refused",
            "Accuracy 50 %: a threshold is missed.",
            [f"recall 0.5 of {NASTY[0]} is below 0.6"],
        ),
        balance=balance,
        files={"files": 63, "examples": 63, "rejected": 0, "skipped": 0},
        anomalies={"train": ()},
        history={
            name: [math.nan if "val" in name else v[0]] for name, v in make_history(1).items()
        },
        comparison=replace(comparison, metrics=replace(measures, scalars=scalars), intervals={}),
        samples=tuple(ClassSample(label, (digit(1, size=8),), ()) for label in NASTY),
        rejects=(),
        mistakes=make_mistakes(NASTY, len(NASTY)),
        images=make_images(measures, each=2),
        suspects=make_suspects(NASTY, points=2 * len(NASTY)),
        baseline_version="",
        notes=(),
    )
