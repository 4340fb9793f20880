"""The verdict next to TFMA's files: made by the Evaluator, read by the report."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace

import tensorflow as tf

from components.evaluation.answering.split_counts import SplitCounts
from components.evaluation.blessing import explain_blessing
from components.evaluation.config import EvaluationConfig
from components.evaluation.metrics.intervals import paired_interval_of_counts, proportion_interval
from components.evaluation.verdict import Measured, Verdict, judge, refuse_broken

_FILE = "verdict.json"


def make_verdict(
    evaluation_uri: str,
    config: EvaluationConfig,
    measured: Measured,
    *,
    holds: bool,
    broken: str = "",
) -> Verdict:
    """Judge the model of an evaluation, and keep the verdict with it.

    Args:
        evaluation_uri: output folder of the Evaluator, with TFMA's files.
        config: of the evaluation.
        measured: of `measure_accuracy`.
        holds: whether the measured values meet every threshold.
        broken: why the exported model failed its smoke test; "" if it did not.
    """
    verdict = judge(
        measured,
        explained=explain_blessing(evaluation_uri, measured.majority_accuracy),
        holds=holds,
        max_drop=config.max_accuracy_drop,
        strict=config.decide_by == "interval",
    )
    if broken:
        verdict = refuse_broken(verdict, broken)
    with tf.io.gfile.GFile(os.path.join(evaluation_uri, _FILE), "w") as file:
        file.write(json.dumps(asdict(verdict), indent=1) + "\n")
    return verdict


def read_verdict(evaluation_uri: str) -> Verdict:
    """Read what `make_verdict` has written."""
    with tf.io.gfile.GFile(os.path.join(evaluation_uri, _FILE)) as file:
        return Verdict(**json.loads(file.read()))


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
