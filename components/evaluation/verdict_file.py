"""The verdict next to TFMA's files: made by the Evaluator, read by the report."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace

import numpy as np
import tensorflow as tf

from components.evaluation.blessing import explain_blessing
from components.evaluation.config import EvaluationConfig
from components.evaluation.metrics.intervals import paired_interval, wilson_interval
from components.evaluation.metrics.predictions import Evaluated
from components.evaluation.verdict import Measured, Verdict, judge, refuse_broken

_FILE = "verdict.json"


def make_verdict(
    evaluation_uri: str,
    evaluated: Evaluated,
    config: EvaluationConfig,
    majority_accuracy: float,
    *,
    holds: bool,
    broken: str = "",
) -> Verdict:
    """Judge the model of an evaluation, and keep the verdict with it.

    Args:
        evaluation_uri: output folder of the Evaluator.
        evaluated: the predictions that are kept there.
        config: of the evaluation.
        majority_accuracy: accuracy of always answering with the most frequent class, 0 to 1.
        holds: whether the measured values meet every threshold.
        broken: why the exported model failed its smoke test; "" if it did not.
    """
    verdict = judge(
        measure_accuracy(evaluated, majority_accuracy),
        explained=explain_blessing(evaluation_uri, majority_accuracy),
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


def measure_accuracy(evaluated: Evaluated, majority_accuracy: float) -> Measured:
    """Return the accuracy of the candidate, against that of the model in use if there is one."""
    right = evaluated.candidate.answers.right
    measured = Measured(
        images=len(right),
        accuracy=float(np.mean(right)),
        interval=wilson_interval(right),
        majority_accuracy=majority_accuracy,
    )
    if evaluated.baseline is None:
        return measured
    before = evaluated.baseline.answers.right
    return replace(
        measured,
        change=float(np.mean(right) - np.mean(before)),
        change_interval=paired_interval(right, before),
        disagreement=float(np.mean(right != before)),
    )
