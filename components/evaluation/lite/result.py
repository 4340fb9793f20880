"""Measurements of the small versions of a model, and the file that holds them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from components.storage.artifact_files import open_file

_FILE = "lite.json"


@dataclass(frozen=True)
class LiteResult:
    """A small version, measured on the images that the model is evaluated on."""

    kind: str
    """float16, dynamic or int8."""
    bytes: int = 0
    """Size of its file."""
    accuracy: float = 0.0
    drop: float = 0.0
    """Accuracy of the model minus that of this version."""
    agreement: float = 0.0
    """Fraction of the images, 0 to 1, for which it predicts the same class as the model."""
    images_per_second: float = 0.0
    """One image at a time, on one core."""
    reason: str = ""
    """Why it is not pushed; "" if it is, with the model."""


def write_results(evaluation_uri: str, results: Sequence[LiteResult]) -> None:
    """Write results next to TFMA's files."""
    with open_file(os.path.join(evaluation_uri, _FILE), "w") as file:
        file.write(json.dumps([asdict(result) for result in results], indent=1) + "\n")


def read_results(evaluation_uri: str) -> tuple[LiteResult, ...]:
    """Read the results; none if there are no small versions."""
    try:
        with open_file(os.path.join(evaluation_uri, _FILE)) as file:
            return tuple(LiteResult(**fields) for fields in json.loads(file.read()))
    except FileNotFoundError:
        return ()
