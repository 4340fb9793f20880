"""The file of the Evaluator next to TFMA's: verdict, thresholds and results of exports."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from components.contract.artifact_files import open_file, read_json
from components.contract.confidence import Interval
from components.contract.configuration import from_dict, to_dict

Outcome = Literal["blessed", "undecided", "refused"]

_FILE = "verdict.json"


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


@dataclass(frozen=True)
class Judgment:
    """What the Evaluator has decided, and by what."""

    verdict: Verdict
    thresholds: Mapping[str, str]
    """Metric and slice → bounds in words."""
    formats: tuple[FormatResult, ...] = ()
    """Results of the exports."""


def write_judgment(evaluation_uri: str, judgment: Judgment) -> None:
    """Write the judgment into an evaluation."""
    with open_file(os.path.join(evaluation_uri, _FILE), "w") as file:
        file.write(json.dumps(to_dict(judgment), indent=1) + "\n")


def read_judgment(evaluation_uri: str) -> Judgment:
    """Read the judgment of an evaluation."""
    return from_dict(Judgment, read_json(os.path.join(evaluation_uri, _FILE)))
