"""Two runs to compare, without models."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from components.images.thumbnails import Thumbnail
from components.metrics.predictions import Evaluated, Predictions
from components.report.comparison import ComparisonFacts, EvaluatedRun, compare_runs
from tests.pictures import encode, picture

LABELS = ("<script>alert(1)</script>", "قطة", "\u202eturned", "byte \udcff", "plain")


PARTS: Mapping[str, Mapping[str, Any]] = {
    "images": {
        "folder": "/data",
        "fingerprint": "files:5,sha256:aaaa",
        "train: cat": 100,
        "train: dog": 50,
        "test: cat": 20,
    },
    "settings": {"training.epochs": 20, "training.seed": 0},
    "code of steps": {"Trainer": "t1", "Evaluator": "e1"},
    "versions": {"tfx": "1.16.0"},
}


def answer(
    truth: Sequence[str],
    said: Sequence[str],
    *,
    labels: tuple[str, ...] = LABELS,
    keys: Sequence[str] | None = None,
    sure: Sequence[float] | None = None,
) -> EvaluatedRun:
    """Predict `said` with probability `sure`, which defaults to 0.9."""
    columns = {label: column for column, label in enumerate(labels)}
    sureness = np.array(sure or [0.9] * len(truth), np.float32)
    rest = (1 - sureness) / (len(labels) - 1)
    probabilities = np.tile(rest[:, None], len(labels))
    probabilities[np.arange(len(said)), [columns[label] for label in said]] = sureness
    ids = np.array([columns.get(label, -1) for label in truth], np.int64)
    names = tuple(f"{label}/{row:04d}.jpg" for row, label in enumerate(truth))
    return EvaluatedRun(
        name="A",
        title="run 1 of 2026-11-22 10:01",
        output="/out/A",
        split="test",
        parts=PARTS,
        max_drop=0.02,
        evaluated=Evaluated(
            names, {"class": tuple(truth)}, Predictions(labels, ids, probabilities)
        ),
        keys=keys or [f"key {row}" for row in range(len(truth))],
        read_thumbnails=show,
    )


def draw_answers(accuracy: float, *, seed: int = 0) -> EvaluatedRun:
    """Draw 200 predictions of this accuracy; images that one model finds easy, others do, too."""
    hard = np.random.default_rng(0).random(200)
    luck = np.random.default_rng(seed).normal(0, 0.1, 200)
    truth = [LABELS[row % len(LABELS)] for row in range(200)]
    said = [
        label if hard[row] + luck[row] < accuracy else LABELS[(row + 1) % len(LABELS)]
        for row, label in enumerate(truth)
    ]
    return answer(truth, said, sure=(0.5 + 0.4 * hard).tolist())


def show(filenames: Collection[str]) -> Mapping[str, Thumbnail | None]:
    """Return a picture of every second image."""
    image = picture(1)
    shown = Thumbnail(encode(image, "JPEG"), image.width, image.height)
    return {name: shown if name[-5] in "02468" else None for name in filenames}


def compare(
    first: EvaluatedRun,
    second: EvaluatedRun,
    *,
    newest: Literal[0, 1] = 1,
    parts: Mapping[str, Mapping[str, Any]] | None = None,
) -> ComparisonFacts:
    """Compare two runs, A and B; `parts` replace some of B's."""
    second = replace(second, name="B", parts={**PARTS, **(parts or {})})
    return compare_runs(first, second, newest=newest)


def nasty() -> ComparisonFacts:
    """Odd labels, and long names and values."""
    return compare(
        draw_answers(0.6),
        draw_answers(0.8, seed=1),
        parts={
            "images": {"train: " + "<b>" * 30: 7},
            "settings": {"training." + "long_name_" * 12: "value" * 40},
        },
    )
