"""The file next to TFMA's that holds what was measured of small versions."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict

from components.evaluation.lite.result import LiteResult
from components.storage.artifact_files import open_file

_FILE = "lite.json"


def write_results(evaluation_uri: str, results: Sequence[LiteResult]) -> None:
    """Write results, which `read_results` reads."""
    with open_file(os.path.join(evaluation_uri, _FILE), "w") as file:
        file.write(json.dumps([asdict(result) for result in results], indent=1) + "\n")


def read_results(evaluation_uri: str) -> tuple[LiteResult, ...]:
    """Read what was measured; nothing where there are no small versions."""
    try:
        with open_file(os.path.join(evaluation_uri, _FILE)) as file:
            return tuple(LiteResult(**fields) for fields in json.loads(file.read()))
    except FileNotFoundError:
        return ()
