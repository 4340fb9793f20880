"""What TFX's Evaluator calls by name; it loads this module anew each time."""

from __future__ import annotations

from typing import Any

from components.evaluation.tfma.extractors import make_extractors


def custom_extractors(**options: Any) -> list[Any]:
    """Return the extractors of `make_extractors`, which has the same arguments."""
    return make_extractors(**options)
