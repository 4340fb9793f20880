"""What each split of the examples is for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

TRAIN = "train"
"""Weights are fitted to it; statistics and vocabulary are its own."""

EVAL = "eval"
"""Chooses: the epoch whose weights are kept, and when training stops."""

TEST = "test"
"""Judges: metrics and verdict are measured on it, which nothing before has looked at. Where there
is none, `EVAL` judges what it has chosen, and the numbers are optimistic."""

# A split is a folder of TFX's.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

_Value = TypeVar("_Value")


def is_split_name(name: str) -> bool:
    """Say whether a split may have a name: letters, digits, - and _, up to 100 of them."""
    return _NAME.fullmatch(name) is not None


def sort_splits(by_split: Mapping[str, _Value]) -> dict[str, _Value]:
    """Order what belongs to splits as they are used: train, eval, test, then others by name."""
    used = (TRAIN, EVAL, TEST)
    known = [split for split in used if split in by_split]
    others = sorted(split for split in by_split if split not in used)
    return {split: by_split[split] for split in (*known, *others)}
