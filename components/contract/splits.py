"""What each split of the examples is for."""

from __future__ import annotations

TRAIN = "train"
"""Weights are fitted to it; statistics and vocabulary are its own."""

EVAL = "eval"
"""Chooses: the epoch whose weights are kept, and when training stops."""

TEST = "test"
"""Judges: metrics and verdict are measured on it, which nothing before has looked at. Where there
is none, `EVAL` judges what it has chosen, and the numbers are optimistic."""
