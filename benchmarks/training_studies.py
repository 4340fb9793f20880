"""Studies of training's choices: whole runs on the digits, made harder on purpose.

Images of train and eval are changed, those of test are not: they judge.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.contract.example import EVAL, TEST, TRAIN
from pipeline_def.layout import Layout
from pipeline_def.local.sample import write_digits

_ROOT = Path(__file__).resolve().parent.parent
_SHARES = {TRAIN: 0.6, EVAL: 0.15, TEST: 0.25}
_RARE, _RARE_SHARE = ("3", "8"), 0.05
_WRONG = 0.2

Images = Sequence[tuple[Path, str]]
"""Files, and the label that each one is given."""
Harden = Callable[[Images, random.Random], Images]


@dataclass(frozen=True)
class Study:
    """A question to training: which of several choices is best on changed images."""

    title: str
    metric: str
    """Of the split test, in `summary.json`."""
    harden: Harden
    """Changes the images of train, and of eval."""
    arms: Mapping[str, Sequence[str]]
    """Name of a choice → the options of `local_runner.py`; the others are measured against the
    first."""


def _make_rare(images: Images, chance: random.Random) -> Images:
    """Keep one in twenty of two classes, and at least one."""
    kept: list[tuple[Path, str]] = [pair for pair in images if pair[1] not in _RARE]
    for label in _RARE:
        rare = [pair for pair in images if pair[1] == label]
        kept += chance.sample(rare, max(1, round(len(rare) * _RARE_SHARE)))
    return kept


def _mislabel(images: Images, chance: random.Random) -> Images:
    """Give a fifth of the images the label of another class."""
    labels = sorted({label for _, label in images})
    return [
        (
            path,
            chance.choice([other for other in labels if other != label])
            if chance.random() < _WRONG
            else label,
        )
        for path, label in images
    ]


STUDIES = {
    "imbalance": Study(
        f"digits, classes {' and '.join(_RARE)} cut to {_RARE_SHARE:.0%}",
        "balanced_accuracy",
        _make_rare,
        {
            "none": ["--training.balance=none"],
            "weights": ["--training.balance=weights"],
            "sampling": ["--training.balance=sampling"],
        },
    ),
    "noise": Study(
        f"digits, {_WRONG:.0%} of the labels wrong",
        "accuracy",
        _mislabel,
        {
            "none": [],
            "smoothing": ["--training.label_smoothing=0.1"],
            "EMA": ["--training.ema=0.999"],
            "smoothing and EMA": ["--training.label_smoothing=0.1", "--training.ema=0.999"],
        },
    ),
}


def run_study(study: Study, *, seeds: Iterable[int], work: str) -> dict[str, list[dict[str, Any]]]:
    """Train each choice with each seed; return its metrics on the split test, seed by seed.

    Seeds differ in initial weights, order and augmentation, not in the images. All runs share an
    output, so that only the first one reads the images.
    """
    results: dict[str, list[dict[str, Any]]] = {arm: [] for arm in study.arms}
    with tempfile.TemporaryDirectory(dir=work) as folder:
        data, output = os.path.join(folder, "digits"), os.path.join(folder, "output")
        write_images(study, data)
        for seed in seeds:
            for arm, options in study.arms.items():
                print(f"seed {seed}: {arm}", file=sys.stderr, flush=True)
                run = ["--data", data, "--output", output, f"--training.seed={seed}", *options]
                results[arm].append(_run(run, output))
    return results


def write_images(study: Study, target: str) -> None:
    """Write the study's images as `split/label/file`."""
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        write_digits(folder)
        images = [(path, path.parent.name) for path in sorted(Path(folder).glob("*/*"))]
        chance.shuffle(images)
        start = 0.0
        for split, share in _SHARES.items():
            first, start = round(start * len(images)), start + share
            some = images[first : round(start * len(images))]
            for path, label in some if split == TEST else study.harden(some, chance):
                place = Path(target, split, label)
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)


def _run(options: Sequence[str], output: str) -> dict[str, Any]:
    """Run the pipeline; return the metrics of its summary."""
    command = [sys.executable, str(_ROOT / "local_runner.py"), *options]
    subprocess.run(command, cwd=_ROOT, stdout=subprocess.DEVNULL, check=True)
    metrics: dict[str, Any] = json.loads(Path(Layout(output).summary).read_text())["metrics"]
    return metrics
