import json
from pathlib import Path

import numpy as np
import pytest

from components.evaluation.metrics.predictions import Evaluated, Predictions
from components.report.suspects.near_duplicates import (
    Leaks,
    find_mislabeled_copies,
    measure_leaks,
)


@pytest.fixture
def rejects(tmp_path: Path) -> str:
    cluster = {
        "cluster": 1,
        "paths": ["a", "b", "c", "d"],
        "labels": ["cat", "cat", "dog", "dog"],
        "splits": ["train", "test", "test", None],
        "sha256": ["1", "2", "3", "4"],
        "likeness": [1.0, 0.9, 0.8, 0.7],
    }
    (tmp_path / "near_duplicates.jsonl").write_text(json.dumps(cluster) + "\n")
    return str(tmp_path)


def test_copies_with_other_labels_are_suspects(rejects: str, tmp_path: Path) -> None:
    found = find_mislabeled_copies(rejects, decided={"2"})
    assert [(one.path, one.neighbors, one.score) for one in found] == [
        ("a", ("c",), 1.0),
        ("c", ("a", "b"), 0.8),
    ]
    # An earlier version wrote no list.
    assert find_mislabeled_copies(str(tmp_path / "old")) == []


def test_accuracy_is_measured_with_and_without_leaked_images(rejects: str) -> None:
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.2, 0.8]], np.float32)
    predictions = Predictions(("cat", "dog"), np.array([0, 0, 1, 1]), probabilities)
    evaluated = Evaluated(("b", "c", "e", "f"), {}, predictions)
    assert measure_leaks(rejects, evaluated, "test") == Leaks(2, 0.75, 0.5)
    assert measure_leaks(rejects, evaluated, "eval") is None
    assert measure_leaks(rejects, evaluated, "train") is None
