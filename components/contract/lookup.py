"""What a lookup gets of an artifact: no class of TFX, whose import takes longer than any lookup."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LookupInput:
    """An input artifact, as far as lookups read it."""

    uri: str
    """Folder with its files: a path or a URL."""

    span: int = 0
    """Span of the examples that it was made of; 0 where the data has no spans."""


Lookup = Callable[[Mapping[str, LookupInput], Mapping[str, Any]], dict[str, Any]]
"""Inputs and execution properties → the execution properties that were looked up."""
