"""Which of several workers writes what they have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping


def is_chief(environment: Mapping[str, str]) -> bool:
    """Say whether TF_CONFIG names this process the one that writes; one alone does in any case.

    Vertex AI has a task of the type chief; a TFJob has workers only, of which 0 is the chief.
    """
    config = json.loads(environment.get("TF_CONFIG") or "{}")
    task = config.get("task") or {"type": "chief"}
    first = task["type"] == "worker" and int(task["index"]) == 0
    return task["type"] == "chief" or (first and "chief" not in config.get("cluster", {}))
