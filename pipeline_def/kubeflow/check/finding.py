"""What was found out about one thing that a pipeline needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing, and whether it is there."""

    state: Literal["ok", "wrong", "unknown"]
    """unknown: it cannot be seen from this machine."""
    text: str
