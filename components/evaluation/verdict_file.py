"""The verdict and its thresholds, next to TFMA's files: the Evaluator's, read by the report."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from components.evaluation.answering.split_counts import SplitCounts
from components.evaluation.config import EvaluationConfig
from components.evaluation.metrics.intervals import paired_interval_of_counts, proportion_interval
from components.evaluation.verdict import Measured, Verdict, judge, refuse_broken
from components.storage.artifact_files import open_file

_FILE, _THRESHOLDS_FILE = "verdict.json", "thresholds.json"


def make_verdict(
    evaluation_uri: str,
    config: EvaluationConfig,
    measured: Measured,
    *,
    explained: Sequence[str],
    holds: bool,
    broken: str = "",
) -> Verdict:
    """Judge the model of an evaluation, and keep the verdict with it.

    Args:
        evaluation_uri: output folder of the Evaluator.
        config: of the evaluation.
        measured: of `measure_accuracy`.
        explained: which thresholds decided, on which slices, and by how much.
        holds: whether the measured values meet every threshold.
        broken: why the exported model failed its smoke test; "" if it did not.
    """
    verdict = judge(
        measured,
        explained=tuple(explained),
        holds=holds,
        max_drop=config.max_accuracy_drop,
        strict=config.decide_by == "interval",
    )
    if broken:
        verdict = refuse_broken(verdict, broken)
    _write(asdict(verdict), evaluation_uri, _FILE)
    return verdict


def read_verdict(evaluation_uri: str) -> Verdict:
    """Read what `make_verdict` has written."""
    return Verdict(**_read(evaluation_uri, _FILE))


def write_thresholds(evaluation_uri: str, thresholds: Mapping[str, str]) -> None:
    """Keep what a model had to meet: metric and slice → bounds in words."""
    _write(dict(thresholds), evaluation_uri, _THRESHOLDS_FILE)


def read_thresholds(evaluation_uri: str) -> dict[str, str]:
    """Read what `write_thresholds` has written."""
    return _read(evaluation_uri, _THRESHOLDS_FILE)


def _write(facts: Mapping[str, Any], folder: str, name: str) -> None:
    with open_file(os.path.join(folder, name), "w") as file:
        file.write(json.dumps(facts, indent=1) + "\n")


def _read(folder: str, name: str) -> dict[str, Any]:
    with open_file(os.path.join(folder, name)) as file:
        facts: dict[str, Any] = json.loads(file.read())
    return facts


def measure_accuracy(counts: SplitCounts, majority_accuracy: float) -> Measured:
    """Return the accuracy of the candidate, against that of the model in use if there is one.

    Args:
        counts: of all examples.
        majority_accuracy: accuracy of always answering with the most frequent class, 0 to 1.
    """
    of_candidate = counts.models[0].of_place(0)
    examples, right = of_candidate.examples, int(of_candidate.counts[2].sum())
    measured = Measured(
        images=examples,
        accuracy=right / examples,
        interval=proportion_interval(right, examples),
        majority_accuracy=majority_accuracy,
    )
    if len(counts.models) == 1:
        return measured
    return replace(
        measured,
        change=(counts.gained - counts.lost) / examples,
        change_interval=paired_interval_of_counts(examples, counts.gained, counts.lost),
        disagreement=(counts.gained + counts.lost) / examples,
    )
