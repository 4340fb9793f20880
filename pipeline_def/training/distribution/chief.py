"""Which of several workers writes what they have in common; needs no TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

CHIEF, WORKER = "chief", "worker"
"""Kinds of processes that train together."""


def is_chief(environment: Mapping[str, str]) -> bool:
    """Say whether TF_CONFIG names this process the one that writes; one alone does in any case."""
    config = json.loads(environment.get("TF_CONFIG") or "{}")
    task = config.get("task") or {"type": CHIEF, "index": 0}
    return is_first(task["type"], int(task["index"]), kinds=config.get("cluster", {}))


def is_first(kind: str, index: int, *, kinds: Collection[str]) -> bool:
    """Say whether a process is the chief: the one of that kind, or else the first worker.

    Vertex AI has a task of the kind chief; a TFJob has workers only.

    Args:
        kind: of the process.
        index: its number among those of its kind.
        kinds: of all processes; none: it is alone.
    """
    return index == 0 and kind == (WORKER if kinds and CHIEF not in kinds else CHIEF)
