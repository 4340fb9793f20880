"""What the Evaluator writes next to TFMA's files: verdict, thresholds and results of exports."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from components.contract.artifact_files import open_file, read_json
from components.contract.confidence import Interval

Outcome = Literal["blessed", "undecided", "refused"]

_FILE, _THRESHOLDS_FILE, _FORMATS_FILE = "verdict.json", "thresholds.json", "formats.json"


@dataclass(frozen=True)
class Verdict:
    """The decision of the Evaluator, with its reasons."""

    outcome: Outcome
    """undecided: what was measured, good enough or worse than the current model, may be due to
    chance."""
    headline: str
    """One sentence for readers of nothing else."""
    reasons: list[str]
    """Clauses: which threshold decided, on which slice, by how much."""
    evidence: str = ""
    """How well the images support it, in a sentence of `components.metrics.proof.weigh`."""


@dataclass(frozen=True)
class FormatResult:
    """An export in another format, measured on the images that the model is evaluated on."""

    kind: str
    """onnx, float16, dynamic or int8."""
    bytes: int = 0
    """Size of its file."""
    accuracy: float = 0.0
    drop: float = 0.0
    """Accuracy of the model minus that of this format."""
    interval: Interval | None = None
    """95% confidence interval of the drop, paired by image."""
    agreement: float = 0.0
    """Fraction of the images, 0 to 1, for which it predicts the same class as the model."""
    difference: float = 0.0
    """Largest difference of any probability of any image from that of the model."""
    images_per_second: float = 0.0
    """One image at a time, on one core."""
    reason: str = ""
    """Why it is not pushed; "" if it is, with the model."""


def write_verdict(evaluation_uri: str, verdict: Verdict) -> None:
    """Write the verdict into an evaluation."""
    _write(asdict(verdict), evaluation_uri, _FILE)


def read_verdict(evaluation_uri: str) -> Verdict:
    """Read the verdict of an evaluation."""
    return Verdict(**read_json(os.path.join(evaluation_uri, _FILE)))


def write_thresholds(evaluation_uri: str, thresholds: Mapping[str, str]) -> None:
    """Write the thresholds of an evaluation: metric and slice → bounds in words."""
    _write(dict(thresholds), evaluation_uri, _THRESHOLDS_FILE)


def read_thresholds(evaluation_uri: str) -> dict[str, str]:
    """Read the thresholds of an evaluation."""
    return dict(read_json(os.path.join(evaluation_uri, _THRESHOLDS_FILE)))


def write_format_results(evaluation_uri: str, results: Sequence[FormatResult]) -> None:
    """Write the results of the exports into an evaluation."""
    _write([asdict(result) for result in results], evaluation_uri, _FORMATS_FILE)


def read_format_results(evaluation_uri: str) -> tuple[FormatResult, ...]:
    """Read the results of the exports; none if there are no exports."""
    try:
        results = read_json(os.path.join(evaluation_uri, _FORMATS_FILE))
    except FileNotFoundError:
        return ()
    return tuple(
        FormatResult(**fields, interval=ends and Interval(**ends))
        for fields in results
        for ends in [fields.pop("interval")]
    )


def _write(facts: Any, folder: str, name: str) -> None:
    with open_file(os.path.join(folder, name), "w") as file:
        file.write(json.dumps(facts, indent=1) + "\n")
