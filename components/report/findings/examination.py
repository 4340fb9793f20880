"""Findings: what stands out in a run, why it matters, and what to do about it.

Here are the checks of the predictions, and the examination, which runs all checks. Limits without a
source are rules of thumb.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from components.contract.printable import name_some
from components.contract.rules_of_thumb import FEW_IMAGES
from components.report.facts import ReportFacts
from components.report.findings import data, training
from components.report.findings.data import NAMED
from components.report.shown import Finding

# Options of a run with their values, as advice names them.
_OPTIONS = re.compile(r"--\w+\.\w+ [^\s,:;]+(?: --\w+\.\w+ [^\s,:;]+)*")
# With fewer images, noise alone causes such a calibration error.
_LARGE_ECE, _ENOUGH_FOR_ECE = 0.05, 200


def check_certainty(facts: ReportFacts) -> Iterator[Finding]:
    """Look at what limits the meaning of the scores."""
    if facts.is_optimistic:
        yield Finding(
            "metrics",
            f"the same images, {facts.judged_on}, pick and score the model",
            "the scores are slightly optimistic",
            _advise_images(facts),
        )


def _advise_images(facts: ReportFacts) -> str:
    images = sum(sum(labels.values()) for labels in facts.balance.values())
    # What folds exclude, or have done already.
    excluded = facts.folds or facts.find_option("ingest.splits")
    if images < FEW_IMAGES and not excluded:
        return (
            f"judge all {images:,} images, each by a model that has not seen it: --training.folds 5"
        )
    return "add a test/ folder, or collect 1,000 images so that 10 % can be held out"


def check_classes(facts: ReportFacts) -> Iterator[Finding]:
    """Look for classes that are always wrong or cannot be judged."""
    metrics, labels = facts.metrics, np.array(facts.metrics.labels, object)
    if not metrics.support.sum():
        return
    never = metrics.confusion.sum(axis=0) == 0
    if never.any():
        names = name_some(labels[never].tolist(), NAMED)
        rare = metrics.support[never].max() < metrics.support.max() / 2
        more = "add some" if facts.is_balanced else "use --training.balance weights"
        yield Finding(
            "classes",
            f"the model never predicts {names}",
            "every image of such a class is misclassified",
            f"look at the images of {names}{f'; there are few: {more}' if rare else ''}",
        )
    missed = (metrics.support > 0) & (np.diag(metrics.confusion) == 0) & ~never
    if missed.any():
        names = name_some(labels[missed].tolist(), NAMED)
        yield Finding(
            "classes",
            f"no image of {names} is classified correctly",
            f"the model is useless for {names}",
            "see the confusion matrix below: labels may be mixed up",
        )
    absent = metrics.support == 0
    if absent.any():
        names = name_some(labels[absent].tolist(), NAMED)
        yield Finding(
            "classes",
            f"{facts.judged_on} has no images of {names}",
            f"the accuracy on {names} is unknown",
            f"add images of {names}",
        )


def check_calibration(facts: ReportFacts) -> Iterator[Finding]:
    """Look at how well probabilities match accuracy."""
    images, error = int(facts.metrics.support.sum()), facts.metrics.scalars.get("ece", math.nan)
    if images < _ENOUGH_FOR_ECE or not error > _LARGE_ECE:
        return
    bins = [bin_ for bin_ in facts.metrics.reliability if bin_.examples]
    over = sum(bin_.examples * (bin_.confidence - bin_.accuracy) for bin_ in bins) > 0
    yield Finding(
        "calibration",
        f"the calibration error is {error:.3f}: the model is "
        f"{'overconfident' if over else 'underconfident'}",
        "its probabilities are unreliable, for example when compared with a threshold",
        f"it is already calibrated on {facts.selected_on}, which should have more images"
        if facts.find_option("training.calibrate")
        else f"fit a temperature on {facts.selected_on}: --training.calibrate true",
    )


def check_outputs(facts: ReportFacts) -> Iterator[Finding]:
    """Look for outputs that were asked for, and that too few images leave out."""
    if facts.unknowns and facts.unknowns.threshold is None:
        yield Finding(
            "calibration",
            facts.false_alarms.rstrip("."),
            "the model does not say which images are unlike those of training",
            "add images, or change export.false_alarms",
        )


# In the order of how much following the advice usually helps.
_CHECKS: tuple[Callable[[ReportFacts], Iterator[Finding]], ...] = (
    training.check_divergence,
    check_outputs,
    training.check_start,
    check_certainty,
    check_classes,
    training.check_fit,
    training.check_length,
    training.check_search,
    check_calibration,
    data.check_balance,
    data.check_labels,
    data.check_files,
    data.check_anomalies,
    training.check_waiting,
)


@dataclass(frozen=True)
class Examination:
    """What all checks have found."""

    findings: tuple[Finding, ...]
    """The most important first."""
    first: str
    """The options to try first, those of the first advice; empty if no finding advises any."""


def examine(facts: ReportFacts) -> Examination:
    """Run all checks; those without data in the run find nothing."""
    findings = tuple(finding for check in _CHECKS for finding in check(facts))
    matches = (_OPTIONS.search(finding.advice) for finding in findings)
    return Examination(findings, next((match[0] for match in matches if match), ""))
