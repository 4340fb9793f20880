"""Near duplicates that ingest listed: under several labels, or in training and evaluation."""

import itertools
import json
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.contract.example import TRAIN, spell_path
from components.contract.ingest_files import DUPLICATES_FILE, NEAR_DUPLICATES_FILE
from components.metrics.predictions import Evaluated
from components.records.suspects import Suspect
from components.storage.artifact_files import open_file

# A cluster may have thousands.
_MOST_TWINS = 3


@dataclass(frozen=True)
class Leaks:
    """Evaluated images that have a copy, exact or near, among the training images."""

    images: int
    accuracy: float
    """Of all evaluated images, 0 to 1."""
    accuracy_without: float | None
    """Of the others; None if there are none."""


def find_mislabeled_copies(rejects_uri: str, decided: Collection[str] = ()) -> list[Suspect]:
    """Return the images in use whose near duplicates have another label, but for `decided` ones."""
    found = []
    for cluster in _read_lines(rejects_uri, NEAR_DUPLICATES_FILE):
        names = ("paths", "labels", "splits", "sha256", "likeness")
        rows = [row for row in zip(*(cluster[name] for name in names), strict=True) if row[2]]
        twins = {label: _find_others(rows, label) for label in {row[1] for row in rows}}
        for path, label, split, sha256, likeness in rows:
            if twins[label] and sha256 not in decided:
                of = (sha256, spell_path(path), split, label)
                found.append(Suspect(*of, "near_duplicate", likeness, neighbors=twins[label]))
    return found


def _find_others(rows: Iterable[tuple[str, ...]], label: str) -> tuple[str, ...]:
    """Return the paths of the first images with another label."""
    others = (spell_path(row[0]) for row in rows if row[1] != label)
    return tuple(itertools.islice(others, _MOST_TWINS))


def measure_leaks(
    rejects_uri: str, evaluated: Evaluated, split: str, *, trained: Collection[str] = (TRAIN,)
) -> Leaks | None:
    """Compare the accuracy with and without copies from the `trained` splits; None without any."""
    leaked: set[str] = set()
    for name in (DUPLICATES_FILE, NEAR_DUPLICATES_FILE):
        for line in _read_lines(rejects_uri, name):
            splits = {*line["splits"]}
            if split in splits and split not in trained and splits.intersection(trained):
                leaked.update(line["paths"])
    is_leaked = np.array([name in leaked for name in evaluated.filenames], bool)
    if not is_leaked.any():
        return None
    stats = evaluated.candidate.stats
    right = stats.predicted == stats.truth
    rest = None if is_leaked.all() else float(right[~is_leaked].mean())
    return Leaks(int(is_leaked.sum()), float(right.mean()), rest)


def _read_lines(rejects_uri: str, name: str) -> list[dict[str, Any]]:
    try:
        with open_file(os.path.join(rejects_uri, name)) as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:  # An earlier version wrote no list of near duplicates.
        return []
