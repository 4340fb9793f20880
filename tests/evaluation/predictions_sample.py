"""Predictions without a model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from components.metrics.predictions import Evaluated, Flags, Floats, Predictions


def draw_predictions(
    support: Sequence[int], *, sureness: float = 1.5, seed: int = 0
) -> Predictions:
    """Draw predictions for `support` examples per class; sureness raises the accuracy."""
    random = np.random.default_rng(seed)
    ids = random.permutation(np.repeat(np.arange(len(support)), support))
    logits = random.normal(0, 1, (len(ids), len(support)))
    logits[np.arange(len(ids)), ids] += sureness
    scores = np.exp(logits)
    probabilities = (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32)
    # Their order differs from that of the columns.
    labels = tuple(f"class {(n + 1) % len(support):03d}" for n in range(len(support)))
    return Predictions(labels, ids, probabilities)


def make_predictions(
    labels: tuple[str, ...], *, each: int = 20, missing: tuple[int, ...] = ()
) -> Predictions:
    """Draw mostly right predictions, without examples of the classes `missing`."""
    support = [0 if column in missing else each for column in range(len(labels))]
    return replace(draw_predictions(support), labels=labels)


def predict(labels: Sequence[str], truth: Sequence[str], said: Sequence[str]) -> Predictions:
    """Predict `said` with probability 1."""
    columns = {label: column for column, label in enumerate(labels)}
    ids = np.array([columns.get(label, -1) for label in truth], np.int64)
    probabilities = np.eye(len(labels), dtype=np.float32)[[columns[label] for label in said]]
    return Predictions(tuple(labels), ids, probabilities)


def as_evaluated(
    candidate: Predictions,
    baseline: Predictions | None = None,
    slices: Mapping[str, tuple[str, ...]] | None = None,
) -> Evaluated:
    names = tuple(f"{row}.png" for row in range(len(candidate.ids)))
    return Evaluated(names, slices or {}, candidate, baseline)


def normalize(probabilities: Any) -> Floats:
    scores: Floats = probabilities / probabilities.sum(axis=1, dtype=np.float64, keepdims=True)
    return scores


def flags(hits: int, examples: int) -> Flags:
    return np.arange(examples) < hits


TABLE = {
    "skewed": draw_predictions([300, 40, 5, 1, 80, 9, 2]),
    "a class without examples": draw_predictions([30, 0, 20, 10, 0, 5]),
    "a class that is never predicted": draw_predictions([200, 1, 200, 200], sureness=4),
    "two classes": draw_predictions([70, 30]),
    "mostly wrong": draw_predictions([25] * 8, sureness=-1),
}
