"""Findings: what stands out in a run, why it matters, and what to do about it.

Limits without a source are rules of thumb.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from components.report.facts import ReportFacts
from components.report.findings import data, results, training
from components.report.findings.finding import Finding, UnknownError


@dataclass(frozen=True)
class Examination:
    """All findings, and what was checked."""

    findings: tuple[Finding, ...]
    """The most important first."""
    looked_at: tuple[str, ...]
    """Names of the checks, whether they found something or not."""
    unknown: tuple[str, ...]
    """Names of the checks for which the run has no data."""


def examine(facts: ReportFacts) -> Examination:
    """Run all checks."""
    findings: list[Finding] = []
    looked_at, unknown = [], []
    for name, check in _CHECKS.items():
        try:
            findings += check(facts)
            looked_at.append(name)
        except UnknownError:
            unknown.append(name)
    return Examination(tuple(findings), tuple(looked_at), tuple(unknown))


_CHECKS: dict[str, Callable[[ReportFacts], Iterator[Finding]]] = {
    "model in use": results.check_baseline,
    "divergence": training.check_divergence,
    "pretrained weights": training.check_start,
    "statistical certainty": results.check_certainty,
    "classes without correct predictions": results.check_classes,
    "overfitting": training.check_fit,
    "training length": training.check_length,
    "image sizes": data.check_sizes,
    "calibration": results.check_calibration,
    "class balance": data.check_balance,
    "rejected and duplicate files": data.check_files,
    "anomalies and drift": data.check_anomalies,
    "input wait": training.check_waiting,
}
